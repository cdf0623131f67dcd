// Package ferrytest runs scripts (package testscript) of ferry's commands and of
// programs beside them. The test binary itself is each command.
package ferrytest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ferrympi/ferry/cmd/ferry/internal/cli"
	"github.com/ferrympi/ferry/internal/cpu"
)

// Ferry makes this process the command ferry, and ends it.
func Ferry() { os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stderr)) }

// Main is for TestMain: it makes `ferry` and the given programs commands.
func Main(m *testing.M, programs map[string]func()) {
	commands := map[string]func(){"ferry": Ferry}
	maps.Copy(commands, programs)
	testscript.Main(m, commands)
}

// Run runs the scripts in testdata. Each has its own runtime, configuration and
// cache directories, and these commands besides those of testscript: status, empty
// and fields, described at their functions; and the condition processors.
func Run(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status": status, "empty": empty, "fields": fields,
		},
		// processors: there are two at least.
		Condition: func(name string) (bool, error) {
			if name != "processors" {
				return false, fmt.Errorf("unknown condition %s", name)
			}
			return cpu.Available() >= 2, nil
		},
		Setup: func(e *testscript.Env) error {
			e.Setenv("XDG_RUNTIME_DIR", filepath.Join(e.WorkDir, "run"))
			e.Setenv("XDG_CONFIG_HOME", filepath.Join(e.WorkDir, "config"))
			e.Setenv("XDG_CACHE_HOME", filepath.Join(e.WorkDir, "cache"))
			return os.Mkdir(filepath.Join(e.WorkDir, "run"), 0o700)
		},
	})
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
	for _, name := range []string{"HOME", "PATH", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "WORK"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // the status tells
	ts.Logf("%s%s", out.String(), errs.String())
	ts.Check(os.WriteFile(ts.MkAbs("out"), out.Bytes(), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs("err"), errs.Bytes(), 0o600))
	if got := strconv.Itoa(cmd.ProcessState.ExitCode()); got != args[0] {
		ts.Fatalf("exit status %s, want %s", got, args[0])
	}
}

// empty DIR: nothing is in the directory.
func empty(ts *testscript.TestScript, neg bool, args []string) {
	entries, err := os.ReadDir(ts.MkAbs(args[0]))
	ts.Check(err)
	if len(entries) > 0 != neg {
		ts.Fatalf("%s holds %v", args[0], entries)
	}
}

// fields FILE PATH...: FILE is JSON, one value or one per line, and in each of
// them every PATH (a.b.c; arrays are entered at every element) is there.
func fields(ts *testscript.TestScript, neg bool, args []string) {
	dec := json.NewDecoder(strings.NewReader(ts.ReadFile(args[0])))
	values := 0
	for dec.More() {
		var v any
		ts.Check(dec.Decode(&v))
		values++
		for _, p := range args[1:] {
			if err := lookup(v, strings.Split(p, ".")); err != nil {
				ts.Fatalf("%s: %v", p, err)
			}
		}
	}
	if values == 0 || neg {
		ts.Fatalf("no JSON in %s", args[0])
	}
}

func lookup(v any, path []string) error {
	if list, ok := v.([]any); ok {
		for _, e := range list {
			if err := lookup(e, path); err != nil {
				return err
			}
		}
		return nil
	}
	if len(path) == 0 {
		return nil
	}
	m, ok := v.(map[string]any)
	if !ok {
		return fmt.Errorf("%v is no object", v)
	}
	next, ok := m[path[0]]
	if !ok {
		return fmt.Errorf("no field %s in %v", path[0], m)
	}
	return lookup(next, path[1:])
}
