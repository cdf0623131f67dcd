// Package ferrytest runs scripts (package testscript) of ferry's commands and of
// programs beside them. The test binary itself is each command.
package ferrytest

import (
	"bytes"
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ferrympi/ferry/cmd/ferry/internal/cli"
)

// Ferry makes this process the command ferry, and ends it.
func Ferry() { os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stderr)) }

// Main makes `ferry` and the given programs commands of scripts. Call it from TestMain.
func Main(m *testing.M, programs map[string]func()) {
	commands := map[string]func(){"ferry": Ferry}
	maps.Copy(commands, programs)
	testscript.Main(m, commands)
}

// Run runs the scripts in testdata. Each has its own runtime and configuration
// directories, and the additional commands status and empty,
// described at their functions. more may add to them.
func Run(t *testing.T, more ...func(*testscript.Params)) {
	p := testscript.Params{
		Dir:  "testdata",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": status, "empty": empty},
		Setup: func(e *testscript.Env) error {
			e.Setenv("XDG_RUNTIME_DIR", filepath.Join(e.WorkDir, "run"))
			e.Setenv("XDG_CONFIG_HOME", filepath.Join(e.WorkDir, "config"))
			e.Setenv("COLUMNS", "1000") // Tables are not wrapped.
			return os.Mkdir(filepath.Join(e.WorkDir, "run"), 0o700)
		},
	}
	for _, add := range more {
		add(&p)
	}
	testscript.Run(t, p)
}

// status N COMMAND...: the command exits with status N. Its output is there for
// grep in the files out and err.
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N COMMAND")
	}
	path, err := exec.LookPath(args[1])
	ts.Check(err)
	cmd := exec.Command(path, args[2:]...)
	cmd.Dir = ts.Getenv("WORK")
	for _, name := range []string{"HOME", "PATH", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "WORK", "COLUMNS"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // The status is compared below.
	ts.Logf("%s%s", out.String(), errs.String())
	ts.Check(os.WriteFile(ts.MkAbs("out"), out.Bytes(), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs("err"), errs.Bytes(), 0o600))
	if got := strconv.Itoa(cmd.ProcessState.ExitCode()); got != args[0] {
		ts.Fatalf("exit status %s, want %s", got, args[0])
	}
}

// empty DIR: the directory is empty.
func empty(ts *testscript.TestScript, neg bool, args []string) {
	entries, err := os.ReadDir(ts.MkAbs(args[0]))
	ts.Check(err)
	if len(entries) > 0 != neg {
		ts.Fatalf("%s holds %v", args[0], entries)
	}
}
