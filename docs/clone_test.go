package docs

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/internal/needs"
)

// published is the repository's address in the pages.
const published = "https://github.com/ferrympi/ferry"

// cloneLimit bounds a command. A new machine has no build cache and no modules.
const cloneLimit = 15 * time.Minute

// TestClone_NewHome_PagesRunAsTheyStand runs the pages that begin with a clone, command by command, in a home directory
// without settings. The clone has the last commit of this checkout. Caches of Go are the machine's, and with -trimpath
// their objects do not depend on the folder of the clone.
func TestClone_NewHome_PagesRunAsTheyStand(t *testing.T) {
	needs.Time(t)
	for _, page := range []string{"tutorial.md", "../README.md"} {
		if page != "tutorial.md" && !*full {
			continue // It takes as long, and differs in one program.
		}
		t.Run(filepath.Base(page), func(t *testing.T) {
			home := t.TempDir()
			environ := append(environment(t), "HOME="+home, "GOPROXY="+goEnv(t, "GOPROXY"), "GOSUMDB=off", "GOFLAGS=-trimpath")
			m := machine{home: home, enter: func(ctx context.Context, script string) *exec.Cmd {
				return exec.CommandContext(ctx, "sh", "-c", script)
			}, environ: environ}
			m.read(t, page, bare(t, filepath.Join(t.TempDir(), "ferry.git")))
		})
	}
}

// TestClone_NewDebian_TutorialRunsAsItStands runs the tutorial likewise in a Debian that has no more than git, make, Go and the
// machine's settings for packages and modules. It needs the network, and some minutes.
func TestClone_NewDebian_TutorialRunsAsItStands(t *testing.T) {
	if !*full {
		t.Skip("it downloads a Debian, and modules: -full")
	}
	needs.Root(t, "make and enter another Debian")
	needs.Program(t, "mmdebstrap", "mmdebstrap")
	m := debian(t)
	bare(t, filepath.Join(m.root, "srv/ferry.git"))
	m.read(t, "tutorial.md", "/srv/ferry.git")
}

// machine runs the commands of a page in one session.
type machine struct {
	// On this machine, of the file system that the commands see; may be empty.
	root string
	// In that file system.
	home    string
	enter   func(ctx context.Context, script string) *exec.Cmd
	environ []string
}

// read runs a page, with source in place of the published repository.
func (m machine) read(t *testing.T, page, source string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	all, err := blocks(string(text))
	if err != nil {
		t.Fatalf("%s: %v", page, err)
	}
	run := func(line, kill string) (string, int) {
		ctx, cancel := context.WithTimeout(t.Context(), cloneLimit)
		defer cancel()
		// The directory and the environment of a command are those that the one before has left.
		cmd := m.enter(ctx, `cd; if [ -e .session ]; then . ./.session; fi
`+line+`
status=$?; { export -p; echo "cd '$PWD'"; } >"$HOME/.session"; exit $status`)
		cmd.Env = m.environ
		return outcome(t, cmd, kill)
	}
	if out, status := run(`git config --global url."`+source+`".insteadOf `+published+` && git config --global --add safe.directory '*'`, ""); status != 0 {
		t.Fatalf("git config: status %d\n%s", status, out)
	}
	cloned := false
	for _, b := range all {
		cloned = cloned || b.isOfClone
		switch {
		case b.notRun != "", b.full != "" && !*full:
		case b.file != "":
			dir, _ := run("pwd", "")
			path := filepath.Join(m.root, strings.TrimSpace(dir), b.file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Dir(path), map[string]string{filepath.Base(path): strings.Join(b.lines, "\n") + "\n"})
		default:
			b.check(t, page, func(line string) (string, int) { return run(line, b.kill) })
		}
		if t.Failed() {
			return // The other commands depend on it.
		}
	}
	if !cloned {
		t.Errorf("%s: no commands of a clone", page)
	}
}

// bare makes a repository at path of the last commit, and returns path.
func bare(t *testing.T, path string) string {
	t.Helper()
	if _, err := os.Stat("../.git"); err != nil {
		needs.Missing(t, "these sources are no git checkout that can be cloned")
	}
	mustRun(t, "git", "clone", "-q", "--bare", "..", path)
	return path
}

func mustRun(t *testing.T, words ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), words[0], words[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(words, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	return mustRun(t, "go", "env", name)
}

// debian makes a machine in a new folder, with the Go, the processes and the devices of this one.
func debian(t *testing.T) machine {
	t.Helper()
	root := t.TempDir()
	mustRun(t, "../scripts/rootfs", root, "git", "make")
	if err := os.MkdirAll(filepath.Join(root, "usr/local/go"), 0o755); err != nil {
		t.Fatal(err)
	}
	environ := []string{"HOME=/root", "LC_ALL=C.UTF-8", "PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "GOTOOLCHAIN=local"}
	for _, name := range []string{"GOPROXY", "GOSUMDB", "GONOSUMDB", "GOPRIVATE", "GOINSECURE"} {
		environ = append(environ, name+"="+goEnv(t, name))
	}
	for _, name := range []string{"http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"} {
		if value, ok := os.LookupEnv(name); ok {
			environ = append(environ, name+"="+value)
		}
	}
	goroot := goEnv(t, "GOROOT")
	return machine{root: root, home: "/root", environ: environ, enter: func(ctx context.Context, script string) *exec.Cmd {
		// The mounts end with the namespace.
		return exec.CommandContext(ctx, "unshare", "--mount", "--propagation", "private", "/bin/sh", "-eu", "-c", `
			for folder in proc sys dev; do mount --rbind "/$folder" "$1/$folder"; done
			mount --bind "$2" "$1/usr/local/go"
			exec /usr/sbin/chroot "$1" /bin/sh -c "$3"`, "sh", root, goroot, script)
	}}
}
