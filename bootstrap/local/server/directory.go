package server

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxSocketPath is the size of a path in sockaddr_un without its final zero (unix(7)).
const maxSocketPath = 107

// A candidate is a directory that may contain the job's directory.
type candidate struct {
	path string
	// Environment variable that names it, or "".
	variable string
	check    func(fs.FileInfo) error
}

// baseCandidates returns the candidates in order of preference. The runtime directory must be the
// user's own, because su and containers leave that of another user in the environment. In the
// others no other user may rename entries. The fixed ones apply where a variable names a directory
// that is missing, not writable, or too long for a socket's path.
func baseCandidates() []candidate {
	var all []candidate
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		all = append(all, candidate{dir, "XDG_RUNTIME_DIR", checkPrivate})
	}
	if dir := os.Getenv("TMPDIR"); dir != "" {
		all = append(all, candidate{dir, "TMPDIR", checkSticky})
	}
	for _, dir := range []string{"/tmp", "/dev/shm"} {
		if !slices.ContainsFunc(all, func(c candidate) bool { return c.path == dir && c.variable == "TMPDIR" }) {
			all = append(all, candidate{dir, "", checkSticky})
		}
	}
	return all
}

// Bases returns the usable directories for the directories of jobs, in order of preference.
func Bases() (dirs []string) {
	for _, c := range baseCandidates() {
		if base, err := filepath.Abs(c.path); err == nil && c.checkUsable(base) == nil {
			dirs = append(dirs, base)
		}
	}
	return dirs
}

// ListenBeside listens on a socket of the given name (mode 0600) in the job's directory. Call
// Listen first. The caller owns the listener, and Close removes the socket.
func (s *Server) ListenBeside(name string) (net.Listener, error) {
	l, err := listenUnix(filepath.Join(s.Dir(), name))
	if err != nil {
		return nil, fmt.Errorf("%s socket: %w", name, err)
	}
	return l, nil
}

// checkPrivate returns nil if a directory belongs to this user, and no other user may write to it.
func checkPrivate(st fs.FileInfo) error {
	if owner := ownerOf(st); owner != os.Geteuid() {
		return fmt.Errorf("belongs to user %d, not to %d", owner, os.Geteuid())
	}
	if st.Mode()&0o022 != 0 {
		return fmt.Errorf("is writable by others (mode %#o)", st.Mode().Perm())
	}
	return nil
}

// checkSticky returns nil if other users, except the owner of the directory, cannot rename or
// remove entries that are not theirs.
func checkSticky(st fs.FileInfo) error {
	if st.Mode()&0o022 != 0 && st.Mode()&fs.ModeSticky == 0 {
		return fmt.Errorf("is writable by others and not sticky (mode %#o)", st.Mode().Perm())
	}
	return nil
}

func ownerOf(st fs.FileInfo) int {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return int(sys.Uid)
	}
	return -1
}

// listenIn listens in a new directory of the first usable candidate. The error has the reason of
// each.
func listenIn(candidates []candidate) (dir string, l net.Listener, err error) {
	var reasons []string
	for _, c := range candidates {
		dir, l, err := c.listen()
		if err == nil {
			return dir, l, nil
		}
		reasons = append(reasons, fmt.Sprintf("%s: %v", c, err))
	}
	return "", nil, fmt.Errorf("no directory for the job's socket: %s: set TMPDIR to a directory with a short name where this user may write", strings.Join(reasons, "; "))
}

func (c candidate) String() string {
	if c.variable == "" {
		return c.path
	}
	return c.variable + "=" + c.path
}

// listen makes a directory below the candidate, and a socket in it.
func (c candidate) listen() (dir string, l net.Listener, err error) {
	base, err := filepath.Abs(c.path) // Ranks may have another working directory.
	if err == nil {
		err = c.checkUsable(base)
	}
	if err != nil {
		return "", nil, stripPath(err)
	}
	if dir, err = os.MkdirTemp(base, "ferry-"); err != nil {
		return "", nil, stripPath(err)
	}
	if err = makePrivate(dir); err == nil {
		l, err = listenUnix(filepath.Join(dir, "bootstrap"))
	}
	if err != nil {
		os.RemoveAll(dir)
		return "", nil, stripPath(err)
	}
	return dir, l, nil
}

// makePrivate sets the mode of a new directory despite the umask, and checks its owner, because
// some file systems give new entries to another user.
func makePrivate(dir string) error {
	if err := setMode(dir, unix.S_IFDIR, 0o700); err != nil {
		return err
	}
	st, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if err := checkPrivate(st); err != nil {
		return fmt.Errorf("a new directory there %w", err)
	}
	return nil
}

// setMode sets the mode of a new entry of this user, of type format. It follows no link, because a
// user who can replace entries of the directory could lead it to another file of this user.
func setMode(path string, format, mode uint32) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != format {
		return fmt.Errorf("a new entry there (%s) was replaced", filepath.Base(path))
	}
	if int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("a new entry there belongs to user %d, not to %d", st.Uid, os.Geteuid())
	}
	err = unix.Chmod(fmt.Sprint("/proc/self/fd/", fd), mode)
	if errors.Is(err, unix.ENOENT) { // There is no /proc.
		err = unix.Fchmodat(unix.AT_FDCWD, path, mode, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err != nil {
		return &fs.PathError{Op: "chmod", Path: path, Err: err}
	}
	return nil
}

// checkUsable returns nil if base is a directory that passes the candidate's check.
func (c candidate) checkUsable(base string) error {
	st, err := os.Stat(base)
	switch {
	case err != nil:
		return err
	case !st.IsDir():
		return syscall.ENOTDIR
	case c.check != nil:
		return c.check(st)
	}
	return nil
}

// stripPath returns err without operation and path.
func stripPath(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

func listenUnix(path string) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("socket path %s has %d bytes, the limit is %d: choose a shorter directory", path, len(path), maxSocketPath)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := setMode(path, unix.S_IFSOCK, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}
