package build

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/cmd/ferry/internal/gotool"
	"github.com/ferrympi/ferry/internal/needs"
)

// ferryBuild runs the command.
func ferryBuild(t *testing.T, args ...string) error {
	t.Helper()
	cmd := Command()
	cmd.SetArgs(args)
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	return cmd.ExecuteContext(t.Context())
}

// built runs a command that was built.
func built(t *testing.T, binary string, args ...string) string {
	t.Helper()
	var errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir())
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(args, " "), err, out, errs.String())
	}
	return string(out)
}

// The command's ranks are processes of their own, which must have the components too.
func TestBuild_Ferry_RanksHaveItsComponents(t *testing.T) {
	needs.Time(t)
	binary := filepath.Join(t.TempDir(), "myferry")
	kept := filepath.Join(t.TempDir(), "module")
	if err := ferryBuild(t, "--with", "../../../../examples/vendor-btl", "--with", "../../../../examples/vendor-udp", "-o", binary, "--keep", kept); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(kept, "components.yaml")); err != nil || !strings.Contains(string(text), `{kind: btl, name: dgram, import: "example.com/vendor-btl", priority: 0}`) {
		t.Errorf("the manifest: %v\n%s", err, text)
	}
	var e struct {
		Pairs []struct {
			From, To  int
			Transport string
		}
	}
	if err := json.Unmarshal([]byte(built(t, binary, "explain", "--set", "btl=self,dgram", "--json")), &e); err != nil {
		t.Fatal(err)
	}
	over := 0
	for _, p := range e.Pairs {
		if p.From != p.To && p.Transport == "dgram" {
			over++
		}
	}
	if over != 2 {
		t.Errorf("dgram carries %d of 2 pairs: %+v", over, e.Pairs)
	}
	report := filepath.Join(t.TempDir(), "matrix.json")
	built(t, binary, "matrix", "--components", "ob1+dgram,ob1+udp", "--timeout", "1m", "--json", report)
	allPass(t, report, 2)
}

// allPass checks a report of `ferry matrix` over so many stacks.
func allPass(t *testing.T, report string, n int) {
	t.Helper()
	var m struct {
		Rows []struct{ Stack, Case, Status, Reason string }
	}
	text, err := os.ReadFile(report)
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil || len(m.Rows) < 100*n {
		t.Fatalf("%d rows: %v", len(m.Rows), err)
	}
	stacks := map[string]bool{}
	for _, r := range m.Rows {
		stacks[r.Stack] = true
		if r.Status != "pass" && r.Status != "skip" {
			t.Errorf("%s %s: %s %s", r.Stack, r.Case, r.Status, r.Reason)
		}
	}
	if len(stacks) != n {
		t.Errorf("rows of %v", stacks)
	}
}

// goBuild builds a package of a module in a folder.
func goBuild(t *testing.T, dir, pkg string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), filepath.Base(pkg))
	if _, err := (gotool.Go{Dir: dir}).Run(t.Context(), "build", "-o", binary, pkg); err != nil {
		t.Fatal(err)
	}
	return binary
}

// A program that knows of no registry runs over a transport from elsewhere, compiled in or as
// a plugin.
func TestBuild_UnchangedProgram_HasComponents(t *testing.T) {
	needs.Time(t)
	const udp, spmv = "../../../../examples/vendor-udp", "../../../../examples/spmv"
	dir := t.TempDir()
	plugin := goBuild(t, udp, "./btl-udp")
	text, err := os.ReadFile(plugin)
	if err != nil {
		t.Fatal(err)
	}
	pin := fmt.Sprintf("udp=%s@sha256:%x", plugin, sha256.Sum256(text))
	for _, how := range [][]string{{"--with", udp}, {"--plugin", pin}} {
		ferry, program := filepath.Join(dir, "myferry"), filepath.Join(dir, "spmv")
		if err := ferryBuild(t, append(how, "-o", ferry)...); err != nil {
			t.Fatal(err)
		}
		if err := ferryBuild(t, append(how, "--program", spmv, "-o", program)...); err != nil {
			t.Fatal(err)
		}
		out := built(t, ferry, "run", "-n", "4", "--set", "btl=self,udp", program, "-cube", "32")
		if !strings.Contains(out, "ok: spmv on 4 ranks agrees with the serial product") {
			t.Errorf("%v: %s", how, out)
		}
	}
	report, ferry := filepath.Join(dir, "matrix.json"), filepath.Join(dir, "myferry")
	built(t, ferry, "matrix", "--components", "ob1+udp", "--cases", "^(open|btltest|pmltest|conform)", "--timeout", "1m", "--json", report)
	allPass(t, report, 1)
	if err := os.WriteFile(plugin, append(text, 0), 0o700); err != nil { // it runs as before
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), ferry, "explain", "--set", "btl=self,udp").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "has the SHA-256") {
		t.Errorf("another file than the one that was named is started: %v: %s", err, out)
	}
}

func TestBuild_Impossible_ReportsReason(t *testing.T) {
	output := filepath.Join(t.TempDir(), "x")
	for _, c := range []struct {
		args  []string
		says  string
		usage bool
	}{
		{[]string{"-o", output}, "no component: give --with MODULE or --plugin NAME=FILE", true},
		{[]string{"--plugin", "udp", "-o", output}, "want NAME=FILE", true},
		{[]string{"--plugin", "udp=/x@sha256:5f0c", "-o", output}, "want 64 hexadecimal digits", true},
		{[]string{"--plugin", "udp=/x@sha256:", "-o", output}, "no digest after @sha256:", true},
		{[]string{"--plugin", "UDP=/x", "-o", output}, "want a lower case letter", true},
		{[]string{"--plugin", "tcp=/x", "-o", output}, "btl tcp is already in the standard components", true},
		{[]string{"--with", "./none", "-o", output}, "./none", false},
		{[]string{"--with", "../../../../progress", "-o", output}, "undefined: c0.Component", false},
		{[]string{"--with", ".", "-o", output, "--ferry", t.TempDir()}, "no module", true},
		{[]string{"--with", t.TempDir(), "-o", output}, "go.mod file not found", false},
		{[]string{"--with", "../../../../btl/tcp", "-o", output}, "btl tcp is already in the standard components", true},
	} {
		err := ferryBuild(t, c.args...)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v", c.args, err)
			continue
		}
		if status, _ := exit.Of(err); (status == exit.Usage) != c.usage {
			t.Errorf("%q: status %d: %v", c.args, status, err)
		}
	}
	if _, err := os.Stat(output); err == nil {
		t.Error("something was built")
	}
}

func TestBuild_Stopped_LeavesNoFiles(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cmd := Command()
	cmd.SetArgs([]string{"--with", "../../../../examples/vendor-btl", "-o", filepath.Join(t.TempDir(), "x")})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	if err := cmd.ExecuteContext(ctx); err == nil {
		t.Error("no error")
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("%v is left (%v)", left, err)
	}
}
