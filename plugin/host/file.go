package host

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// refusal is why a file is not executed, and what to do about it.
type refusal struct {
	why    error
	remedy string
}

func (r *refusal) Error() string { return r.why.Error() }
func (r *refusal) Unwrap() error { return r.why }

func refuse(remedy, format string, args ...any) error {
	return &refusal{fmt.Errorf(format, args...), remedy}
}

// missing has the remedy for a path that leads nowhere.
func (c component) missing(err error) error {
	why := fmt.Errorf("the plugin's program: %w", err)
	if errors.Is(err, fs.ErrNotExist) {
		why = fmt.Errorf("there is no %s", c.Command[0])
	}
	return &refusal{why, "install it, or correct command in " + c.file()}
}

// file names the file that has the plugin's entry.
func (c component) file() string { return cmp.Or(c.File, "the program that registers it") }

// open opens what is to be executed, and checks that nobody but root and this user could
// have put it there. What is executed then is this very file.
func (c component) open() (*os.File, error) {
	path := c.Command[0]
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, c.missing(err)
	}
	for dir := filepath.Dir(real); ; dir = filepath.Dir(dir) {
		st, err := os.Stat(dir)
		if err != nil {
			return nil, c.missing(err)
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
		return nil, c.missing(err)
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
	if !st.Mode().IsRegular() {
		return refuse("name a program in command of "+c.file(), "%s is not a file that can be executed (mode %v)", path, st.Mode())
	}
	if st.Mode().Perm()&0o111 == 0 {
		return refuse("chmod a+x "+path, "%s is not executable (mode %v)", path, st.Mode())
	}
	if err := owned(path, st); err != nil || c.SHA256 == "" {
		return err
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); !strings.EqualFold(got, c.SHA256) {
		return refuse("install the right file, or, if it was meant to change, correct sha256 in "+c.file(), "%s has the SHA-256 %s, not %s", path, got, c.SHA256)
	}
	return nil
}

// owned says who else could change a file or a folder. In a sticky folder others can't
// replace what is not theirs.
func owned(path string, st os.FileInfo) error {
	uid := st.Sys().(*syscall.Stat_t).Uid
	switch {
	case uid != 0 && int(uid) != os.Geteuid():
		return refuse("install the program where only root or this user can write", "%s belongs to user %d, not to root or to this one", path, uid)
	case st.Mode().Perm()&0o022 != 0 && !(st.IsDir() && st.Mode()&os.ModeSticky != 0):
		return refuse("chmod go-w "+path, "%s can be written by others (mode %v)", path, st.Mode().Perm())
	}
	return nil
}
