// Package docs has the tests of the pages in this folder, which run their commands.
package docs

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var full = flag.Bool("full", false, "run commands in full, and those that take long too")

// limit is the longest that a command may take.
const limit = 2 * time.Minute

// TestCommands_OfPages_Run runs the commands of README and the pages, and compares their output with the
// pages.
func TestCommands_OfPages_Run(t *testing.T) {
	names, err := pages()
	if err != nil {
		t.Fatal(err)
	}
	environ := environment(t)
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all, err := blocks(string(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		t.Run(filepath.Base(name), func(t *testing.T) { run(t, name, all, environ) })
	}
}

// run runs the commands of a page, one after the other, in a directory that is a Go module.
func run(t *testing.T, name string, all []block, environ []string) {
	dir := ""
	for _, b := range all {
		commands := b.commands()
		if b.file == "" && len(commands) == 0 {
			if b.orders != (orders{}) {
				t.Errorf("%s:%d: orders for a block without a command", name, b.line)
			}
			continue
		}
		switch {
		case b.notRun != "":
			t.Logf("%s:%d: not run: %s", name, b.line, b.notRun)
			continue
		case b.isOfClone:
			continue
		case b.full != "" && !*full:
			t.Logf("%s:%d: run with -full only: %s", name, b.line, b.full)
			continue
		case dir == "":
			dir = workplace(t)
		}
		if b.file != "" {
			path := filepath.Join(dir, b.file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(strings.Join(b.lines, "\n")+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if _, ok := programs[b.program]; !ok {
			t.Errorf("%s:%d: there is no program %s", name, b.line, b.program)
			continue
		}
		b.check(t, name, func(line string) (string, int) {
			line = strings.ReplaceAll(line, "PROGRAM", "bin/program")
			return shell(t, dir, line, b.kill, append(environ, "DOCS_PROGRAM="+b.program))
		})
	}
}

// check runs the commands of a block, and compares their status and output with those of the page.
func (b block) check(t *testing.T, name string, run func(line string) (output string, status int)) {
	t.Helper()
	for _, c := range b.commands() {
		line := c.line
		if b.short != "" && !*full {
			line += " " + b.short
		}
		began := time.Now()
		output, status := run(line)
		t.Logf("%s:%d: %s (%.1f s)", name, b.line, line, time.Since(began).Seconds())
		if status != b.status {
			t.Errorf("%s:%d: %s: status %d, want %d\n%s", name, b.line, line, status, b.status, output)
			if requirements.err != nil {
				t.Log(requirements.err)
			}
		} else if piece := missing(c.says, output); piece != "" && !b.varies {
			t.Errorf("%s:%d: %s does not print %q\n%s", name, b.line, line, piece, output)
		}
	}
}

// shell runs a line in a directory, and returns its output and status. If kill is not empty, shell kills process N at the
// first line of output that ends with that text and N.
func shell(t *testing.T, dir, line, kill string, environ []string) (output string, status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir, cmd.Env = dir, environ
	return outcome(t, cmd, kill)
}

// outcome runs a command as shell does.
func outcome(t *testing.T, cmd *exec.Cmd, kill string) (output string, status int) {
	t.Helper()
	out := &killer{}
	if kill != "" {
		out.victim = regexp.MustCompile(regexp.QuoteMeta(kill) + ` (\d+)\n`)
	}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, out, 5*time.Second
	err := cmd.Run() // The status has the result.
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	if kill != "" && (out.victim != nil || out.err != nil) {
		t.Errorf("%s: no process was killed: the output has no %q and a number, or kill failed: %v", cmd, kill, out.err)
	}
	return out.output.String(), cmd.ProcessState.ExitCode()
}

// killer is an output. When victim first matches, the process of that number is killed.
type killer struct {
	// Not embedded, because io.Copy would call its ReadFrom in place of Write.
	output bytes.Buffer
	victim *regexp.Regexp // Nil afterwards.
	err    error
}

func (k *killer) Write(p []byte) (int, error) {
	n, err := k.output.Write(p)
	if k.victim == nil {
		return n, err
	}
	if found := k.victim.FindSubmatch(k.output.Bytes()); found != nil {
		k.victim = nil
		var pid int
		if pid, k.err = strconv.Atoi(string(found[1])); k.err == nil {
			k.err = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	return n, err
}

// environment returns an environment with ferry in PATH, and without the user's configuration.
func environment(t *testing.T) []string {
	t.Helper()
	bin := t.TempDir()
	install(t, filepath.Join(bin, "ferry"))
	runtimeDir, err := os.MkdirTemp("", "ferry-docs-") // a socket's name is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(runtimeDir) })
	environ := append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "XDG_RUNTIME_DIR="+runtimeDir,
		"XDG_CONFIG_HOME="+t.TempDir(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
	for _, name := range []string{"GOCACHE", "GOMODCACHE"} {
		out, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal("go env: ", err)
		}
		environ = append(environ, name+"="+strings.TrimSpace(string(out)))
	}
	return environ
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

var requirements struct {
	sync.Once
	// Added to failures of commands that build programs.
	err error
}

// downloadRequirements checks a program in a module with these files, so that everything it takes to build it is in the module cache. A module that requires ferry needs the go.mod files of
// everything below ferry. Building ferry itself does not: on a new machine they are not in the module cache, where the
// commands of the pages, which have no proxy, look for them.
func downloadRequirements(t *testing.T, files map[string]string) error {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, files)
	write(t, dir, map[string]string{"main.go": "package main\n\nimport (\n\t_ \"github.com/ferrympi/ferry/cmd/ferry/command\"\n\t_ \"github.com/ferrympi/ferry/mpi\"\n)\n\nfunc main() {}\n"})
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "vet", ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("what ferry requires may be missing in the module cache: %w\n%s", err, out)
	}
	return nil
}

// workplace returns a directory like a reader's, a module that requires ferry, with bin/program.
func workplace(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile("../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	module := fmt.Sprintf("module example.org/page\n\ngo 1.26\n\nrequire github.com/ferrympi/ferry v0.0.0\n\nreplace github.com/ferrympi/ferry => %s\n", root)
	files := map[string]string{"go.mod": module, "go.sum": string(sums)}
	write(t, dir, files)
	requirements.Do(func() { requirements.err = downloadRequirements(t, files) })
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	install(t, filepath.Join(dir, "bin", "program"))
	return dir
}

// install copies this program to path. It runs as the program of that name.
func install(t *testing.T, path string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if os.Link(self, path) == nil {
		return
	}
	from, err := os.Open(self) // another file system
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err == nil {
		_, err = io.Copy(to, from)
	}
	if err == nil {
		err = to.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Commands in blocks of unusual form must be found too.
func TestBlocks_UnusualForms_AreFound(t *testing.T) {
	text := strings.Join([]string{
		"Text.", "", "    $ ferry a", "    out", "", "    more", "    $ ferry b", "", "<!-- docs: not run, no network; status 3 -->", "", "    go get x", "    ferry run: said",
		"", "```sh", "make run # words", "```", "", "<!-- docs: file a/b.go -->", "```go", "package b", "```",
	}, "\n")
	all, err := blocks(text)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range all {
		for _, c := range b.commands() {
			got = append(got, fmt.Sprintf("%d %s %q %s %d", b.line, c.line, c.says, b.notRun, b.status))
		}
	}
	want := []string{`3 ferry a ["out" "" "more"]  0`, `3 ferry b []  0`, `11 go get x [] no network 3`, `14 make run # words []  0`}
	if strings.Join(got, "\n") != strings.Join(want, "\n") || all[len(all)-1].file != "a/b.go" {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
	for _, bad := range []string{"<!-- docs: perhaps -->\n\n    $ ferry", "<!-- docs: status x -->\n\n    $ ferry", "<!-- docs: status 1 -->\n\ntext"} {
		if _, err := blocks(bad); err == nil {
			t.Errorf("no error: %s", bad)
		}
	}
	if missing([]string{"rank 3 ... at 12.5 us", "  and"}, "rank 0 (pid 7) is at  9 us\nand") != "" || missing([]string{"other"}, "text") != "other" {
		t.Error("output is not compared as it should be")
	}
}

func TestMissing_OutputDiffersInMeasuredValues_Found(t *testing.T) {
	for _, pair := range [][2]string{
		{"rank 2 (pid 28328) exited 214ms after the start", "rank 2 (pid 7) exited 1.27s after the start"},
		{"after 3m12s", "after 1h2m3.5s"},
		{"mean 1.2 us, longest 3 ms", "mean 900 ns, longest 2.5 s"},
		{"2026/11/27 10:31:39 rank 3 continues", "2027/1/1 0:00:00 rank 12 continues"},
	} {
		if piece := missing([]string{pair[0]}, pair[1]); piece != "" {
			t.Errorf("the output %q does not have %q of the page", pair[1], piece)
		}
	}
	for _, pair := range [][2]string{{"3 messages", "3 sessions"}, {"4 members", "4 bytes"}} {
		if missing([]string{pair[0]}, pair[1]) == "" {
			t.Errorf("the output %q counts as that of the page, %q", pair[1], pair[0])
		}
	}
}
