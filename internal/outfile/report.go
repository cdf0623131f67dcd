package outfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// Report is a file whose contents are replaced as a whole, once or repeatedly.
type Report struct {
	target *target
	// Written in place; nil for a file that is replaced.
	stream *os.File
}

// NewReport checks that a report can be written to a path, and leaves no file there. Call it before
// the work that produces the report. The caller closes the report.
func NewReport(path string) (*Report, error) {
	t, err := find(path)
	if err != nil {
		return nil, err
	}
	r := &Report{target: t}
	if err := r.open(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *Report) open() (err error) {
	t := r.target
	switch {
	case t.isKernel:
		r.stream, err = t.open(unix.O_APPEND)
		return err
	case t.exists && !t.isRegular():
		r.stream, err = t.open(0)
		return err
	case t.exists: // A file that can't be written is not replaced either.
		f, err := t.open(0)
		if err != nil {
			return err
		}
		f.Close()
	}
	beside, err := r.create()
	if errors.Is(err, fs.ErrPermission) && t.exists {
		r.stream, err = t.openAlone(0) // The folder or the owner permits no replacement.
		return err
	} else if err != nil {
		return fmt.Errorf("%s can't be replaced: %w", t.path, err)
	}
	return beside.Cleanup()
}

// IsReplaced reports whether Write replaces a file, so that calls before the last one leave a
// complete report.
func (r *Report) IsReplaced() bool { return r.stream == nil }

// IsSameFile reports whether both reports go to one regular file.
func (r *Report) IsSameFile(other *Report) bool { return r.target.isSame(other.target) }

// Write writes a report. After an error of write, a replaced file is the one before.
func (r *Report) Write(write func(io.Writer) error) error {
	if !r.IsReplaced() {
		if r.target.isRegular() {
			if err := r.stream.Truncate(0); err != nil {
				return err
			}
		}
		return buffered(r.stream, write)
	}
	f, err := r.create()
	if err != nil {
		return err
	}
	defer f.Cleanup()
	if err := buffered(f, write); err != nil {
		return err
	}
	err = f.CloseAtomicallyReplace()
	if errors.Is(err, fs.ErrPermission) && r.target.isRegular() { // Another user's file in a sticky folder.
		if r.stream, err = r.target.openAlone(0); err == nil {
			return r.Write(write)
		}
	}
	return err
}

func buffered(to io.Writer, write func(io.Writer) error) error {
	w := bufio.NewWriter(to)
	if err := write(w); err != nil {
		return err // Flush returns an error of a write again.
	}
	return w.Flush()
}

// create creates the file that takes the name of the target, with mode and owner of the one there.
func (r *Report) create() (*renameio.PendingFile, error) {
	t := r.target
	f, err := renameio.NewPendingFile(t.name, renameio.WithRoot(t.folder), renameio.WithPermissions(0o666), renameio.WithExistingPermissions())
	if err != nil {
		return nil, err
	}
	if err := r.keepOwner(f.File); err != nil {
		return nil, errors.Join(err, f.Cleanup())
	}
	return f, nil
}

// keepOwner gives f to the owner of the present file.
func (r *Report) keepOwner(f *os.File) error {
	before, err := r.target.folder.Lstat(r.target.name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !before.Mode().IsRegular() {
		return nil
	} else if err != nil {
		return err
	}
	now, err := f.Stat()
	if err != nil {
		return err
	}
	have, want := now.Sys().(*syscall.Stat_t), before.Sys().(*syscall.Stat_t)
	if have.Uid == want.Uid && have.Gid == want.Gid {
		return nil
	}
	if err := f.Chown(int(want.Uid), int(want.Gid)); err != nil {
		return err
	}
	return f.Chmod(before.Mode().Perm()) // Some systems clear bits at a change of the owner.
}

// Close closes the file. It returns errors that a network file system reports only then.
func (r *Report) Close() error {
	r.target.close()
	if r.stream == nil {
		return nil
	}
	return r.stream.Close()
}
