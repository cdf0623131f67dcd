// Package trustedfile opens files that decide which code a process runs, such as programs,
// libraries, sources, and configuration that names them. It refuses a file that a user other than root
// and the effective one could have put in place, or can change.
//
// The path is resolved element by element, relative to descriptors of folders that have passed
// the check. The result is the checked file even if another user renames folders or replaces
// links meanwhile.
//
// It stands on the standard library and golang.org/x/sys.
package trustedfile

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Error is the refusal of a file that another user can change, or whose path another user can.
type Error struct {
	// File, folder or link that failed the check.
	Path string
	// Continues the sentence that Path begins.
	Problem string
	Remedy  string

	// The mode of Path is the only problem.
	isWritable bool
}

// Error returns path and problem, without the remedy.
func (e *Error) Error() string { return e.Path + " " + e.Problem }

// Open opens a file for reading, without blocking. The caller checks its type. Name returns the
// path without links. Open returns an *Error if a user other than root and the effective one
// owns, or may write to, the file or a folder above it. A sticky folder may be writable by
// others; a link in it must not belong to them. Errors of the system are *fs.PathError.
func Open(path string) (*os.File, error) { return resolve(path, unix.O_RDONLY|unix.O_NONBLOCK) }

// Check returns the error of Open for a file or folder, without opening it for reading.
func Check(path string) error {
	f, err := resolve(path, unix.O_PATH)
	if err != nil {
		return err
	}
	return f.Close()
}

// CheckLibrary returns the error of Check for a library that is a file. A missing file passes,
// because the dynamic linker reports it. So does a name without a slash, because the linker searches for
// it in folders of the system and of the environment.
func CheckLibrary(name string) error {
	if !strings.Contains(name, "/") {
		return nil
	}
	err := Check(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if refusal, ok := errors.AsType[*Error](err); ok {
		refusal.Remedy += "; or name the library without a folder, and add the folder to LD_LIBRARY_PATH"
	}
	return err
}

// Remedy returns the remedy of an *Error that err wraps, else the other one.
func Remedy(err error, other string) string {
	if refusal, ok := errors.AsType[*Error](err); ok {
		return refusal.Remedy
	}
	return other
}
