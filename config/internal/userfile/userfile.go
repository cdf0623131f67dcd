// Package userfile says where the files of a user lie, and whether one is fit to be
// read: for package config and what stands below it.
package userfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Path returns path in one of the user's directories, which the value of an XDG
// variable names or which is below in home; or "". As the XDG specification asks, a
// relative directory is ignored.
func Path(xdg, home, below, path string) string {
	switch {
	case filepath.IsAbs(xdg):
		return filepath.Join(xdg, path)
	case filepath.IsAbs(home):
		return filepath.Join(home, below, path)
	}
	return ""
}

// Check returns nil if path is a regular file of at most limit bytes; to read another
// could take for ever. An error is fs.ErrNotExist, or goes on after the path's name.
func Check(path string, limit int64) error {
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("is missing: %w", fs.ErrNotExist)
	case err != nil:
		return fmt.Errorf("can't be read: %w", err)
	case !info.Mode().IsRegular():
		return errors.New("is not a regular file")
	case info.Size() > limit:
		return fmt.Errorf("has %d bytes, where at most %d are expected", info.Size(), limit)
	}
	return nil
}
