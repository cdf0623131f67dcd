package launch

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/bootstrap/local/control"
	"github.com/ferrympi/ferry/bootstrap/local/server"
)

// Running returns the directories of this user's running jobs that can be controlled. Jobs may lie elsewhere than
// the next job of this process would, if they were started with another TMPDIR. /proc/net/unix has these.
func Running() []string {
	var dirs []string
	for _, base := range server.Bases() {
		found, _ := filepath.Glob(filepath.Join(escape(base), dirPrefix+"*", control.Name)) // The pattern is valid.
		dirs = append(dirs, found...)
	}
	if f, err := os.Open("/proc/net/unix"); err == nil {
		dirs = append(dirs, controlSockets(f)...)
		f.Close()
	}
	for i, socket := range dirs {
		dirs[i] = filepath.Dir(socket)
	}
	slices.Sort(dirs)
	return slices.DeleteFunc(slices.Compact(dirs), func(dir string) bool { return !isRunning(dir) })
}

// escape returns a pattern of package filepath that matches the path alone.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// controlSockets returns the paths of sockets in a list of the kernel's (/proc/net/unix) that may be those of jobs.
func controlSockets(list io.Reader) (paths []string) {
	for lines := bufio.NewScanner(list); lines.Scan(); {
		_, path, ok := strings.Cut(lines.Text(), " /") // The path is the last field, and the only one with a slash.
		path = "/" + path
		if ok && filepath.Base(path) == control.Name && strings.HasPrefix(filepath.Base(filepath.Dir(path)), dirPrefix) {
			paths = append(paths, path)
		}
	}
	return paths
}

// isRunning reports whether a directory is that of a running job of this user, which holds its
// lock. A job makes its control socket after it has taken the lock, so that this attempt can't take it first.
func isRunning(dir string) bool {
	st, err := os.Lstat(filepath.Join(dir, control.Name))
	if err != nil || st.Mode().Type() != os.ModeSocket || !isOwn(st) {
		return false
	}
	f, err := lock(dir)
	if err == nil {
		f.Close()
	}
	return errors.Is(err, unix.EWOULDBLOCK)
}
