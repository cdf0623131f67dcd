package host

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// file opens what is to be executed, and checks that nobody but root and this user could
// have put it there. What is executed then is this very file.
func (c component) file() (*os.File, error) {
	path := c.Command[0]
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	for dir := filepath.Dir(real); ; dir = filepath.Dir(dir) {
		st, err := os.Stat(dir)
		if err != nil {
			return nil, err
		}
		if err := owned(dir, st); err != nil {
			return nil, err
		}
		if dir == "/" {
			break
		}
	}
	f, err := os.OpenFile(real, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err := c.check(f, real); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (c component) check(f *os.File, path string) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() || st.Mode().Perm()&0o111 == 0 {
		return fmt.Errorf("%s is not an executable file", path)
	}
	if err := owned(path, st); err != nil || c.SHA256 == "" {
		return err
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); !strings.EqualFold(got, c.SHA256) {
		return fmt.Errorf("%s has the SHA-256 %s, not %s", path, got, c.SHA256)
	}
	return nil
}

// owned says who else could change a file or a folder. In a sticky folder others can't
// replace what is not theirs.
func owned(path string, st os.FileInfo) error {
	var u unix.Stat_t
	if err := unix.Stat(path, &u); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	switch {
	case u.Uid != 0 && int(u.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to user %d, not to root or to this one", path, u.Uid)
	case st.Mode().Perm()&0o022 != 0 && !(st.IsDir() && st.Mode()&os.ModeSticky != 0):
		return fmt.Errorf("%s can be written by others (mode %v)", path, st.Mode().Perm())
	}
	return nil
}
