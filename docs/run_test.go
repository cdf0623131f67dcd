package docs

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ferrympi/ferry/internal/needs"
)

// TestMakeRun_Output_FitsATerminal runs the commands of `make run` with programs that are built elsewhere. The output
// has at most 40 lines of 80 columns.
func TestMakeRun_Output_FitsATerminal(t *testing.T) {
	const mostLines, mostColumns = 40, 80
	if _, err := exec.LookPath("make"); err != nil {
		needs.Missing(t, "make is missing: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	run := func(name string, args ...string) string {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir = ".."
		for _, v := range os.Environ() {
			if !strings.HasPrefix(v, "COLUMNS=") && !strings.HasPrefix(v, "FERRY_") && !strings.HasPrefix(v, "MAKE") {
				cmd.Env = append(cmd.Env, v)
			}
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	dir := t.TempDir()
	run("go", "build", "-o", dir, "./cmd/ferry", "./examples/spmv")
	out := "go build -o bin/ ./cmd/ferry ./examples/...\n" // The line of make build.
	commands := 0
	for line := range strings.Lines(run("make", "-n", "run")) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "bin/ferry" {
			continue
		}
		commands++
		out += line
		for i, w := range words {
			if name, ok := strings.CutPrefix(w, "bin/"); ok {
				words[i] = filepath.Join(dir, name)
			}
		}
		out += run(words[0], words[1:]...)
	}
	if commands < 2 || !strings.Contains(out, "\nPAIRS ") || !strings.Contains(out, "\nok: spmv ") || !strings.Contains(out, "Latency (us)") {
		t.Errorf("%d commands print no pairs, result or table:\n%s", commands, out)
	}
	if n := strings.Count(out, "\n"); n > mostLines {
		t.Errorf("%d lines, want at most %d:\n%s", n, mostLines, out)
	}
	for line := range strings.Lines(out) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > mostColumns {
			t.Errorf("%d columns, want at most %d: %s", n, mostColumns, line)
		}
	}
}
