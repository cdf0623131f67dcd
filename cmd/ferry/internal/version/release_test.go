package version

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var full = flag.Bool("full", false, "build ferry from a checkout, an archive and by go install")

const root = "../../../.."

// run runs a command in dir with additional environment variables, and returns its output.
func run(t *testing.T, dir string, environ []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "MAKEFLAGS=", "GIT_CONFIG_NOSYSTEM=1", "GOWORK=off")
	cmd.Env = append(cmd.Env, environ...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, errs.String())
	}
	return strings.TrimSpace(string(out))
}

// checkout is a repository that has these sources, as they are now, in its only commit.
func checkout(t *testing.T) (dir, commit string) {
	t.Helper()
	for _, tool := range []string{"git", "make"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	from, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	tmp := t.TempDir()
	config := filepath.Join(tmp, "gitconfig")
	if err := os.WriteFile(config, []byte("[user]\nname = A\nemail = a@example.org\n[init]\ndefaultBranch = main\n[safe]\ndirectory = *\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GIT_CONFIG_GLOBAL", config)
	for _, name := range []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"} { // a hook's
		t.Setenv(name, "")
		os.Unsetenv(name)
	}
	first := []string{"--git-dir", filepath.Join(tmp, "first.git"), "--work-tree", from}
	run(t, from, nil, "git", "init", "-q", "--bare", first[1])
	run(t, from, nil, "git", append(first, "add", "-A")...)
	run(t, from, nil, "git", append(first, "-c", "core.bare=false", "commit", "-q", "-m", "all")...)
	dir = filepath.Join(tmp, "src")
	run(t, tmp, nil, "git", "clone", "-q", first[1], dir)
	return dir, run(t, dir, nil, "git", "rev-parse", "HEAD")
}

// unpack makes the archive of a checkout, and returns the directory that it unpacks to.
func unpack(t *testing.T, src string) string {
	t.Helper()
	archive := run(t, src, nil, "make", "-s", "dist")
	to := t.TempDir()
	run(t, to, nil, "tar", "-xzf", archive)
	dir := filepath.Join(to, strings.TrimSuffix(filepath.Base(archive), ".tar.gz"))
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Fatalf("%s: %v", archive, err)
	}
	return dir
}

func TestVersion_FromArchive_HasCommit(t *testing.T) {
	src, commit := checkout(t)
	want := Release + "-dev+" + commit[:shortHashLength]
	dir := unpack(t, src)
	if base := filepath.Base(dir); base != "ferry-"+want {
		t.Errorf("the archive is called %s, and the version is %s", base, want)
	}
	stamp := func(dir string) string {
		b, err := os.ReadFile(filepath.Join(dir, "cmd/ferry/internal/version/archived.txt"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if got := fromSources(stamp(dir), "", built("(devel)")); got != want {
		t.Errorf("built from the archive it is %s, not %s", got, want)
	}
	if got := fromSources(stamp(src), "", built("v0.0.0-20261122132244-"+commit[:shortHashLength])); got != want {
		t.Errorf("built from the checkout it is %s, not %s", got, want)
	}
	if out := run(t, src, nil, "make", "-n", "build"); !strings.Contains(out, "version.commit="+commit+"'") {
		t.Errorf("make build does not know the commit:\n%s", out)
	}
	if err := os.WriteFile(filepath.Join(src, "LICENSE"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out := run(t, src, nil, "make", "-n", "build"); !strings.Contains(out, "version.commit="+commit+".dirty'") {
		t.Errorf("make build does not know that sources have changed:\n%s", out)
	}
	run(t, src, nil, "git", "checkout", "-q", "LICENSE")

	run(t, src, nil, "git", "tag", "-a", "-m", "release", "v"+Release)
	if dir = unpack(t, src); filepath.Base(dir) != "ferry-"+Release {
		t.Errorf("the archive of a release is called %s", filepath.Base(dir))
	}
	if got := fromSources(stamp(dir), "", built("(devel)")); got != Release {
		t.Errorf("built from the archive of release %s it is %s", Release, got)
	}
}

// Ferry is built from a checkout, from an archive and by go install, which fetches the commit from a repository.
func TestVersion_CheckoutArchiveInstall_AreEqual(t *testing.T) {
	if !*full {
		t.Skip("it builds ferry three times: -full; TestVersion_FromArchive_HasCommit is the short form")
	}
	src, commit := checkout(t)
	want := "ferry version " + Release + "-dev+" + commit[:shortHashLength]
	ferry := filepath.Join(t.TempDir(), "ferry")
	for how, dir := range map[string]string{"checkout": src, "archive": unpack(t, src)} {
		run(t, dir, []string{"GOFLAGS=-mod=readonly"}, "go", "build", "-trimpath", "-buildvcs=auto", "-o", ferry, "./cmd/ferry")
		if got := run(t, dir, nil, ferry, "version"); got != want {
			t.Errorf("%s: %q, want %q", how, got, want)
		}
	}
	// The forge's address is that repository's.
	run(t, src, nil, "git", "config", "--global", "url.file://"+src+".insteadOf", "https://github.com/ferrympi/ferry")
	cache := run(t, src, nil, "go", "env", "GOMODCACHE")
	bin, modules := t.TempDir(), t.TempDir()
	run(t, bin, []string{
		"GOBIN=" + bin, "GOMODCACHE=" + modules, "GOFLAGS=-modcacherw", "GOPRIVATE=github.com/ferrympi/ferry", "GOSUMDB=off",
		"GOPROXY=file://" + filepath.ToSlash(cache) + "/cache/download", "GOVCS=*:git", "GIT_ALLOW_PROTOCOL=file:https",
	}, "go", "install", "-trimpath", "github.com/ferrympi/ferry/cmd/ferry@"+commit)
	if got := run(t, bin, nil, filepath.Join(bin, "ferry"), "version"); got != want {
		t.Errorf("go install: %q, want %q", got, want)
	}
}

var section = regexp.MustCompile(`(?m)^## \[?([^\]\n]*?)\]?(?: - ([0-9-]*))?$`)

// changelog returns the releases of CHANGELOG.md.
func changelog(t *testing.T) (released []string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := section.FindAllStringSubmatch(string(b), -1)
	if len(all) == 0 || all[0][1] != "Unreleased" {
		t.Fatalf("CHANGELOG.md: the first section is not [Unreleased]: %q", all)
	}
	date := regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}$`)
	for _, s := range all[1:] {
		if !releasePattern.MatchString("v"+s[1]) || !date.MatchString(s[2]) {
			t.Errorf("CHANGELOG.md: %q is not the section of a release, such as [1.2.3] - 2026-01-31", s[0])
		}
		released = append(released, s[1])
	}
	return released
}
