package host

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"

	plugin "github.com/hashicorp/go-plugin"
	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/trustedfile"
)

// refusal is the reason not to execute a file, with a remedy.
type refusal struct {
	why    error
	remedy string
}

func (r *refusal) Error() string { return r.why.Error() }
func (r *refusal) Unwrap() error { return r.why }

func refuse(remedy, format string, args ...any) error {
	return &refusal{fmt.Errorf(format, args...), remedy}
}

// missing returns the refusal of a path without a file.
func (c component) missing(err error) error {
	why := fmt.Errorf("the plugin's program: %w", err)
	if errors.Is(err, fs.ErrNotExist) {
		why = fmt.Errorf("there is no %s", c.Command[0])
	}
	return &refusal{why, "install it, or correct command in " + c.file()}
}

// file names the file that has the plugin's entry.
func (c component) file() string { return cmp.Or(c.File, "the program that registers it") }

// open opens the program. Only root and this user may have written the file and its folders. The plugin is executed from the returned descriptor.
func (c component) open() (*os.File, error) {
	f, err := trustedfile.Open(c.Command[0])
	if untrusted, ok := errors.AsType[*trustedfile.Error](err); ok {
		return nil, &refusal{untrusted, untrusted.Remedy}
	} else if err != nil {
		return nil, c.missing(err)
	}
	if err = c.check(f, f.Name()); err == nil {
		err = executable(f, f.Name())
	}
	if err != nil {
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
	return c.checkSum(f, path)
}

// checkSum compares the contents with the entry's sha256. It reads through the descriptor, since the
// path may have another file by now.
func (c component) checkSum(f *os.File, path string) error {
	want, err := hex.DecodeString(c.SHA256)
	if err != nil {
		return err
	}
	h := sha256.New()
	ok, err := (&plugin.SecureConfig{Checksum: want, Hash: h}).Check("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
	if err != nil || ok {
		return err
	}
	return refuse("install the right file, or, if it was meant to change, correct sha256 in "+c.file(), "%s has the SHA-256 %x, not %s", path, h.Sum(nil), c.SHA256)
}

// scriptHead is the part of a script's first line that Linux reads.
const scriptHead = 256

// executable refuses a file that this machine does not execute.
func executable(f *os.File, path string) error {
	head := make([]byte, scriptHead)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if line, ok := bytes.CutPrefix(head[:n], []byte("#!")); ok {
		line, _, _ = bytes.Cut(line, []byte("\n"))
		return interpreter(string(line), path)
	}
	program, err := elf.NewFile(f)
	if err != nil {
		return refuse("build it for this machine; a script begins with #! and its interpreter", "%s is neither a program nor a script", path)
	}
	if machines[runtime.GOARCH] != program.Machine {
		return refuse("install the one for "+runtime.GOARCH, "%s is a program for %v, and this machine is %s", path, program.Machine, runtime.GOARCH)
	}
	return nil
}

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// interpreter refuses a script without its interpreter.
func interpreter(line, path string) error {
	words := strings.Fields(line)
	if len(words) == 0 {
		return refuse("write one behind #!", "the script %s names no interpreter", path)
	}
	if err := unix.Access(words[0], unix.X_OK); err != nil {
		return refuse("install it, or correct the first line of the script", "the interpreter %s of the script %s: %w", words[0], path, err)
	}
	return nil
}
