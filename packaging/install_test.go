// Package packaging has the tests of installations, packages and images, which are made from
// the files beside it by scripts/install, scripts/package and scripts/image.
package packaging

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/ferrympi/ferry/internal/needs"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(status int) {
		os.RemoveAll(programs.dir)
		os.Exit(status)
	}))
}

// programs are the commands that the tests share.
var programs struct {
	sync.Mutex
	dir string
}

// commit is the commit of the commands that the tests build, and version their version.
const (
	commit  = "0123456789abcdef0123456789abcdef01234567"
	version = "0.1.0-dev+0123456789ab"
)

// run runs a command in dir, and returns its output without standard error.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "MAKEFLAGS=", "SOURCE_DATE_EPOCH=1790000000")
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, errs.String())
	}
	return strings.TrimSpace(string(out))
}

// compiled returns a folder with the commands ferry and hello. With cgo, which needs a C
// compiler, they can load C libraries.
func compiled(t *testing.T, cgo bool) string {
	t.Helper()
	value := "0"
	if cgo {
		needs.Program(t, "gcc", "gcc")
		value = "1"
	}
	programs.Lock()
	defer programs.Unlock()
	if programs.dir == "" {
		dir, err := os.MkdirTemp("", "packaging")
		if err != nil {
			t.Fatal(err)
		}
		programs.dir = dir
	}
	dir := filepath.Join(programs.dir, "cgo-"+value)
	if _, err := os.Stat(filepath.Join(dir, "hello")); err != nil {
		run(t, "..", "env", "CGO_ENABLED="+value, "go", "build", "-ldflags", "-s -w -X github.com/ferrympi/ferry/cmd/ferry/internal/version.commit="+commit, "-o", dir+"/", "./cmd/ferry", "./examples/hello")
	}
	return dir
}

// sources returns a folder with the files that the scripts read, and bin/ferry in it.
func sources(t *testing.T) string {
	t.Helper()
	needs.Program(t, "make", "make")
	dir := t.TempDir()
	// Files that the test opens itself make go test run it again when they change.
	for _, name := range []string{"scripts", "packaging", "docs", "examples"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join("..", name))); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"Makefile", "README.md", "CHANGELOG.md", "ARCHITECTURE.md", "SECURITY.md", "LICENSE"} {
		text, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name), string(text))
	}
	run(t, dir, "mkdir", "bin")
	_, err := exec.LookPath("gcc")
	run(t, dir, "cp", filepath.Join(compiled(t, err == nil), "ferry"), "bin")
	return dir
}

// listing returns the sorted paths of all files and folders below dir, folders with a slash at the end.
func listing(t *testing.T, dir string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if d.IsDir() {
			rel += "/"
		}
		paths = append(paths, rel)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(paths)
	return paths
}

// difference returns the elements of one sorted list that another one lacks.
func difference(of, without []string) (d []string) {
	for _, e := range of {
		if _, found := slices.BinarySearch(without, e); !found {
			d = append(d, e)
		}
	}
	return d
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// installed are files of every installation.
var installed = []string{
	"bin/ferry", "share/man/man1/ferry.1", "share/man/man1/ferry-run.1",
	"share/bash-completion/completions/ferry", "share/zsh/site-functions/_ferry", "share/fish/vendor_completions.d/ferry.fish",
	"share/doc/ferry/README.md", "share/doc/ferry/LICENSE", "share/doc/ferry/docs/install.md", "share/doc/ferry/docs/deploy/docker.md",
	"share/doc/ferry/examples/hello/main.go", "share/doc/ferry/examples/vendor-btl/go.mod", "share/modulefiles/ferry/" + version + ".lua",
}

func TestInstall_Prefix_ContainsAllFiles(t *testing.T) {
	dir, dest := sources(t), t.TempDir()
	run(t, dir, "make", "-s", "install", "DESTDIR="+dest, "PREFIX=/usr")
	found := listing(t, dest)
	for _, name := range installed {
		if !slices.Contains(found, "usr/"+name) {
			t.Errorf("no %s among %q", name, found)
		}
	}
	for _, path := range found {
		if info, err := os.Stat(filepath.Join(dest, path)); err != nil || info.Size() == 0 {
			t.Errorf("%s is empty: %v", path, err)
		}
		if strings.Contains(path, "/docs/") && (strings.HasSuffix(path, ".go") || strings.Contains(path, "testdata")) {
			t.Errorf("%s is a test's", path)
		}
	}
	if got := run(t, dest, filepath.Join(dest, "usr/bin/ferry"), "version"); got != "ferry version "+version {
		t.Errorf("the command's version is %q", got)
	}
	cmd := exec.Command("make", "-s", "install", "PREFIX=here")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "MAKEFLAGS=")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "must be an absolute path: here") {
		t.Errorf("a relative prefix: %v\n%s", err, out)
	}
}

func TestUninstall_SharedPrefix_LeavesOtherFiles(t *testing.T) {
	dir, prefix := sources(t), filepath.Join(t.TempDir(), "prefix")
	for _, name := range []string{"bin/other", "share/man/man1/other.1", "share/modulefiles/other/1.lua"} {
		write(t, filepath.Join(prefix, name), "other")
	}
	if err := os.MkdirAll(filepath.Join(prefix, "share/zsh"), 0o755); err != nil { // empty
		t.Fatal(err)
	}
	before := listing(t, prefix)
	run(t, dir, "make", "-s", "install", "PREFIX="+prefix)
	write(t, filepath.Join(prefix, "share/doc/ferry/notes"), "a user's")

	// The second installation lacks a page and a folder of the first one.
	first := listing(t, prefix)
	for _, name := range []string{"examples/pi", "docs/faq.md"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	run(t, dir, "make", "-s", "install", "PREFIX="+prefix)
	for _, path := range difference(first, listing(t, prefix)) {
		if !strings.HasPrefix(path, "share/doc/ferry/examples/pi/") && path != "share/doc/ferry/docs/faq.md" {
			t.Errorf("the second installation removed %s", path)
		}
	}
	if n := len(difference(first, listing(t, prefix))); n < 3 {
		t.Errorf("the second installation removed %d obsolete files and folders", n)
	}

	run(t, dir, "make", "-s", "uninstall", "PREFIX="+prefix)
	after := listing(t, prefix)
	notes := []string{"share/doc/", "share/doc/ferry/", "share/doc/ferry/notes"}
	if d := difference(after, before); !slices.Equal(d, notes) {
		t.Errorf("uninstall left %q, not %q", d, notes)
	}
	if d := difference(before, after); len(d) > 0 {
		t.Errorf("uninstall removed %q", d)
	}
	if out, err := exec.Command(filepath.Join(dir, "scripts/install"), "--remove", prefix).CombinedOutput(); err == nil || !strings.Contains(string(out), "is missing") {
		t.Errorf("a second uninstall: %v\n%s", err, out)
	}
}

func TestUninstall_OwnPrefix_RemovesIt(t *testing.T) {
	dir, parent := sources(t), t.TempDir()
	run(t, dir, "make", "-s", "install", "PREFIX="+parent+"/prefix")
	run(t, dir, "make", "-s", "uninstall", "PREFIX="+parent+"/prefix")
	if left := listing(t, parent); len(left) > 0 {
		t.Errorf("uninstall left %q", left)
	}
}

func TestModuleFile_Load_AddsPrefixToPath(t *testing.T) {
	lmod := "/usr/share/lmod/lmod/libexec/lmod"
	if _, err := os.Stat(lmod); err != nil {
		needs.Missing(t, "no Lmod: install lmod (scripts/setup)")
	}
	text, err := os.ReadFile("ferry.lua")
	if err != nil {
		t.Fatal(err)
	}
	prefix := t.TempDir()
	write(t, filepath.Join(prefix, "share/modulefiles/ferry", version+".lua"), string(text))
	out := run(t, ".", "env", "MODULEPATH="+prefix+"/share/modulefiles", lmod, "bash", "load", "ferry")
	for _, want := range []string{"\nPATH=" + prefix + "/bin:", "LOADEDMODULES=ferry/" + version + ";"} {
		if !strings.Contains(out, want) {
			t.Errorf("Lmod does not print %q:\n%s", want, out)
		}
	}
}

// A package's command is in the PATH already, and /usr/bin must not come before /usr/local/bin.
func TestModuleFile_BelowUsr_KeepsPath(t *testing.T) {
	lua := needs.Program(t, "lua5.3", "lmod")
	stubs := `function nothing() end
help, whatis, conflict, myModuleVersion = nothing, nothing, nothing, function() return "1" end
function pathJoin(a, b) return a .. "/" .. b end
function prepend_path(name, value) print(name .. "=" .. value) end
for _, prefix in ipairs{"/usr", "/usr/local"} do
	function myFileName() return prefix .. "/share/modulefiles/ferry/1.lua" end
	dofile("ferry.lua")
end`
	if got := run(t, ".", lua, "-e", stubs); got != "PATH=/usr/local/bin" {
		t.Errorf("the module file changes %q", got)
	}
}
