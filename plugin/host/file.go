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
	"strings"

	"github.com/ferrympi/ferry/internal/trustedfile"
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

// open opens the program. Only root and this user can have put it there, or can change it. The
// plugin is executed from this descriptor.
func (c component) open() (*os.File, error) {
	f, err := trustedfile.Open(c.Command[0])
	if untrusted, ok := errors.AsType[*trustedfile.Error](err); ok {
		return nil, &refusal{untrusted, untrusted.Remedy}
	} else if err != nil {
		return nil, c.missing(err)
	}
	if err := c.check(f, f.Name()); err != nil {
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
	if c.SHA256 == "" {
		return nil
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
