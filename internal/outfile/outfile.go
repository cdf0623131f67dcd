// Package outfile opens files for results, also in folders that other users may write to. Such a
// user can place a link, a named pipe or a file at the path and replace it at any time. No function
// of this package truncates, replaces or removes a file that only a link of another user leads to,
// writes to a pipe of another user, or waits for the reader of a pipe.
//
// Devices, named pipes and the user's own links are opened as such. A complete report replaces a
// regular file and takes over its mode and owner.
package outfile

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Create opens a file for a stream of output. An existing regular file is truncated and keeps its
// mode and owner. A new one has mode 0666 before the umask.
func Create(path string) (*os.File, error) { return stream(path, 0, 0o666) }

// Append opens a file, or creates it with a mode, to write at its end.
func Append(path string, mode fs.FileMode) (*os.File, error) {
	return stream(path, unix.O_APPEND, uint32(mode.Perm()))
}

func stream(path string, flags int, mode uint32) (*os.File, error) {
	f, err := streamOnce(path, flags, mode)
	if errors.Is(err, fs.ErrExist) { // Another process has just created it.
		f, err = streamOnce(path, flags, mode)
	}
	return f, err
}

func streamOnce(path string, flags int, mode uint32) (*os.File, error) {
	t, err := find(path)
	if err != nil {
		return nil, err
	}
	defer t.close()
	switch {
	case !t.exists:
		return t.create(flags, mode)
	case t.isKernel:
		return t.open(unix.O_APPEND) // Another descriptor of the file may be in use, such as standard output.
	case !t.isRegular():
		return t.open(0)
	}
	f, err := t.openAlone(flags)
	if err == nil && flags&unix.O_APPEND == 0 {
		if err = f.Truncate(0); err != nil {
			f.Close()
		}
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}
