package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// socketDirLimit is the longest directory path for the folder of go-plugin's socket, in bytes. The address of a Unix socket has at most 107 bytes,
// and go-plugin adds up to 38.
const socketDirLimit = 50

// socketDirs returns the candidates for the folder of go-plugin's socket, the preferred one first.
// job is the directory of the job, "" if there is none.
func socketDirs(job string) []string { return []string{job, os.Getenv("TMPDIR"), "/tmp", "/dev/shm"} }

// socketDir returns the absolute path of the first usable candidate. Empty ones are skipped. The error has
// the reason of each.
func socketDir(candidates []string) (string, error) {
	var reasons []string
	for _, dir := range candidates {
		if dir == "" {
			continue
		}
		abs, err := filepath.Abs(dir)
		if err == nil {
			err = checkSocketDir(abs)
		}
		if err == nil {
			return abs, nil
		}
		reasons = append(reasons, fmt.Sprintf("%s: %v", dir, err))
	}
	return "", fmt.Errorf("no directory for go-plugin's socket: %s; set TMPDIR to a directory of at most %d bytes where this user may write", strings.Join(reasons, "; "), socketDirLimit)
}

// checkSocketDir returns nil if a folder can be made in dir, and dir is short enough for a socket.
func checkSocketDir(dir string) error {
	if len(dir) > socketDirLimit {
		return fmt.Errorf("the path has %d bytes, the limit is %d", len(dir), socketDirLimit)
	}
	folder, err := os.MkdirTemp(dir, "plugin-dir")
	if err == nil {
		err = os.Remove(folder)
	}
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}
