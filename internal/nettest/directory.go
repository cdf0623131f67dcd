package nettest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// parent is where hosts have their shared memory.
const parent = "/dev/shm"

// directory makes a directory for two hosts, after it has removed those of dead
// processes. It is held by a file lock, which ends with this process.
func directory() (path string, release func() error, err error) {
	old, err := filepath.Glob(parent + "/ferry-nettest-*")
	if err != nil {
		return "", nil, err
	}
	for _, o := range old {
		if f, err := lock(o); err == nil {
			if err := errors.Join(os.RemoveAll(o), f.Close()); err != nil {
				return "", nil, err
			}
		}
	}
	for {
		if path, err = os.MkdirTemp(parent, fmt.Sprintf("ferry-nettest-%d-", os.Getpid())); err != nil {
			return "", nil, err
		}
		f, err := lock(path)
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, os.ErrNotExist) {
			continue // another New has taken it for one of a dead process
		}
		if err != nil {
			return "", nil, errors.Join(err, os.RemoveAll(path))
		}
		return path, func() error { return errors.Join(os.RemoveAll(path), f.Close()) }, nil
	}
}

// lock locks a directory that is still there under its name.
func lock(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		var now, opened os.FileInfo
		opened, err = f.Stat()
		if err == nil {
			now, err = os.Stat(path)
		}
		if err == nil && !os.SameFile(now, opened) {
			err = os.ErrNotExist
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
