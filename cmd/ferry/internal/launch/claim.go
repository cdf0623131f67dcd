package launch

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/bootstrap/local/server"
)

// staleAge is the least age of a job's directory with an ended launcher, if its lock is free.
// A launcher creates the directory a moment before it takes the lock.
const staleAge = time.Minute

// dirPrefix is how the names of the directories that server.Listen makes begin.
const dirPrefix = "ferry-"

// A claim is the lock on a job's directory. The kernel drops it with the
// process, so that a free lock is that of a launcher that was killed.
type claim struct {
	// Nil without a lock.
	lockedDir    *os.File
	staleRemoval sync.WaitGroup // See removeStale.
}

func (c *claim) release() {
	c.staleRemoval.Wait()
	if c.lockedDir != nil {
		c.lockedDir.Close()
	}
}

// listen opens the server's socket, and takes the claim.
// The directories of launchers that were killed are removed while the job runs:
// it need not wait for that.
func listen(srv *server.Server) (*claim, error) {
	if err := srv.Listen(""); err != nil {
		return nil, err
	}
	c := &claim{}
	// Without the lock the job runs as well; only tidying up after a kill is lost.
	var err error
	if c.lockedDir, err = lock(srv.Dir()); err == nil {
		base := filepath.Dir(srv.Dir())
		c.staleRemoval.Go(func() { removeStale(base) })
	}
	return c, nil
}

// lock takes the lock of a directory of this user. It never blocks.
func lock(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !isOwn(st) {
		err = &fs.PathError{Op: "lock", Path: dir, Err: fs.ErrPermission}
	}
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// isOwn reports whether a file belongs to this user.
func isOwn(st fs.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(sys.Uid) == os.Geteuid()
}

// removeStale removes this user's stale job directories below base.
func removeStale(base string) {
	entries, err := os.ReadDir(base)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), dirPrefix) {
			continue
		}
		dir := filepath.Join(base, e.Name())
		st, err := os.Lstat(filepath.Join(dir, "bootstrap"))
		if err != nil || st.Mode().Type() != os.ModeSocket || !isOwn(st) || time.Since(st.ModTime()) < staleAge {
			continue
		}
		f, err := lock(dir)
		if err != nil {
			continue // alive
		}
		_ = os.RemoveAll(dir) // The next job tries again.
		f.Close()
	}
}
