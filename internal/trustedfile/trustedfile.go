// Package trustedfile opens files that decide which code a process runs: programs, libraries,
// sources, and configuration that names them. It refuses a file that a user other than root
// and the effective one could have put in place, or can change.
//
// The path is resolved element by element, relative to descriptors of folders that have passed
// the check. The result is the checked file even if another user renames folders or replaces
// links meanwhile.
//
// It stands on the standard library and golang.org/x/sys.
package trustedfile

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Error is a refusal: another user can change the file, or the path to it.
type Error struct {
	Path    string // File, folder or link that failed the check.
	Problem string // Continues the sentence that Path begins.
	Remedy  string
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

// CheckLibrary returns the error of Check for a library that is a file. A name without a slash
// passes, because the dynamic linker searches for it in folders of the system and of the
// environment.
func CheckLibrary(name string) error {
	if !strings.Contains(name, "/") {
		return nil
	}
	return Check(name)
}
