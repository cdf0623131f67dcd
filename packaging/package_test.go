package packaging

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/internal/needs"
)

// debian is the version as Debian and RPM write it, in which a pre-release precedes the release.
var debian = strings.Replace(version, "-", "~", 1)

// enter runs a command in the root file system root, as user, with mounts and processes of
// its own, which end with the command.
func enter(t *testing.T, root, user string, command ...string) string {
	t.Helper()
	setup := `mount --make-rprivate /
mkdir -p "$1/proc" "$1/dev"
mount -t proc proc "$1/proc"
mount -t tmpfs -o mode=755 tmpfs "$1/dev"
mkdir -m 1777 "$1/dev/shm"
ln -s /proc/self/fd "$1/dev/fd"
for device in null zero urandom; do
	: >"$1/dev/$device"
	mount --bind "/dev/$device" "$1/dev/$device"
done
root=$1 user=$2
shift 2
exec chroot --userspec="$user" "$root" "$@"`
	args := append([]string{"--mount", "--pid", "--fork", "--kill-child", "env", "-i", "PATH=" + os.Getenv("PATH"), "HOME=/", "sh", "-ec", setup, "sh", root, user}, command...)
	return run(t, root, "unshare", args...)
}

// makePackage returns the path of a package that make has made.
func makePackage(t *testing.T, dir, format string) string {
	t.Helper()
	path := run(t, dir, "make", "-s", "-o", "build", format)
	again := t.TempDir()
	one, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.ReadFile(run(t, dir, "scripts/package", format, again))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one, other) {
		t.Errorf("two packages of the same sources differ: %s", filepath.Base(path))
	}
	return path
}

// debianRoot returns the root file system of a Debian as a tar. The tests share it, as it
// takes most of their time. It has the libraries of `make image LIBRARIES=1`.
func debianRoot(t *testing.T) string {
	t.Helper()
	needs.Program(t, "mmdebstrap", "mmdebstrap")
	file := filepath.Join(filepath.Dir(compiled(t, true)), "root.tar")
	if _, err := os.Stat(file); err != nil {
		cmd := exec.CommandContext(t.Context(), "scripts/rootfs", file, "libfabric1", "libucx0", "ibverbs-providers", "man-db", "bash-completion", "zsh")
		cmd.Dir = ".."
		if out, err := cmd.CombinedOutput(); err != nil {
			os.Remove(file) // The other tests try again.
			needs.Missing(t, "no Debian: scripts/rootfs, which needs the package sources of apt: %v\n%s", err, out)
		}
	}
	return file
}

func TestDeb_NewDebian_InstallsRunsAndRemoves(t *testing.T) {
	needs.Time(t)
	needs.Root(t, "make another Debian")
	needs.Program(t, "gcc", "gcc")
	dir, root := sources(t), t.TempDir()
	deb := makePackage(t, dir, "deb")
	if got := run(t, dir, "dpkg-deb", "-f", deb, "Version"); got != debian {
		t.Errorf("the version is %s, not %s", got, debian)
	}
	if got := run(t, dir, "dpkg-deb", "-f", deb, "Depends"); !strings.HasPrefix(got, "libc6 (>= 2.") {
		t.Errorf("it depends on %q, and the command is linked with a C library", got)
	}
	run(t, root, "tar", "-xpf", debianRoot(t))
	if err := os.MkdirAll(filepath.Join(root, "dev"), 0o755); err != nil { // enter mounts there
		t.Fatal(err)
	}
	before := listing(t, root)
	run(t, dir, "cp", deb, filepath.Join(root, "tmp/ferry.deb"))
	enter(t, root, "root", "dpkg", "-i", "/tmp/ferry.deb")

	for _, c := range []struct{ name, script, want string }{
		{"version", "ferry version", "ferry version " + version},
		{"job", "ferry run -n 2 ferry conform", "pass "},
		{"manual page", "man ferry-run", "FERRY-RUN(1)"},
		{"bash completion", `. /usr/share/bash-completion/bash_completion
_completion_loader ferry
COMP_LINE="ferry ver" COMP_POINT=9 COMP_WORDS=(ferry ver) COMP_CWORD=1
$(complete -p ferry | sed 's/.*-F \([^ ]*\).*/\1/') ferry ver ferry 2>/dev/null
echo "${COMPREPLY[@]}"`, "version"},
		{"zsh completion", "zsh -c 'autoload -Uz compinit && compinit -u -D && echo $_comps[ferry]'", "_ferry"},
		{"module file", "cat /usr/share/modulefiles/ferry/*.lua", "prepend_path"},
		{"license", "cat /usr/share/doc/ferry/copyright", "BSD 3-Clause"},
		{"page", "cat /usr/share/doc/ferry/docs/install.md", "# Install"},
		{"example", "cat /usr/share/doc/ferry/examples/hello/main.go", "package main"},
	} {
		if got := enter(t, root, "root", "bash", "-c", c.script); !strings.Contains(got, c.want) {
			t.Errorf("%s: no %q in the output of the command\n%s", c.name, c.want, got)
		}
	}

	enter(t, root, "root", "sh", "-c", "dpkg -r ferry && dpkg -P ferry && rm /tmp/ferry.deb")
	left := slices.DeleteFunc(difference(listing(t, root), before), func(path string) bool {
		return strings.HasPrefix(path, "var/lib/dpkg/") || path == "var/log/dpkg.log" || strings.HasPrefix(path, "var/cache/man/") // of dpkg and man-db themselves
	})
	if len(left) > 0 {
		t.Errorf("dpkg -r left %q", left)
	}
}

func TestRPM_Query_NamesFilesAndRequirements(t *testing.T) {
	needs.Time(t)
	needs.Program(t, "rpm", "rpm")
	needs.Program(t, "gcc", "gcc")
	dir := sources(t)
	path := makePackage(t, dir, "rpm")
	if got := run(t, dir, "rpm", "-qp", "--queryformat", "%{NAME} %{VERSION} %{LICENSE}", path); got != "ferry "+debian+" BSD-3-Clause" {
		t.Errorf("the package is %q", got)
	}
	if got := run(t, dir, "rpm", "-qp", "--requires", path); !strings.HasPrefix(got, "libc.so.6(GLIBC_2.") {
		t.Errorf("it requires %q, and the command is linked with a C library", got)
	}
	run(t, dir, "rpm", "-K", "--nosignature", path)
	files := strings.Split(run(t, dir, "rpm", "-qlp", path), "\n")
	for _, name := range append(slices.Clone(installed), "share/licenses/ferry/LICENSE") {
		if strings.Contains(name, "/man/") {
			name += ".gz"
		}
		if !slices.Contains(files, "/usr/"+name) {
			t.Errorf("no /usr/%s among %q", name, files)
		}
	}
	for _, path := range []string{"/usr", "/usr/bin", "/usr/share", "/usr/share/doc", "/usr/share/man/man1"} { // of package filesystem
		if slices.Contains(files, path) {
			t.Errorf("the package owns %s", path)
		}
	}
}

func TestPackage_WithoutCgo_DependsOnNothing(t *testing.T) {
	needs.Time(t)
	needs.Program(t, "dpkg-deb", "dpkg")
	dir := sources(t)
	run(t, dir, "cp", filepath.Join(compiled(t, false), "ferry"), "bin")
	deb := run(t, dir, "scripts/package", "deb", dir)
	if got := run(t, dir, "dpkg-deb", "-f", deb, "Depends"); got != "" {
		t.Errorf("it depends on %q", got)
	}
	out, err := exec.Command(filepath.Join(dir, "scripts/package"), "zip", dir).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "unknown format zip: deb or rpm") {
		t.Errorf("an unknown format: %v\n%s", err, out)
	}
}
