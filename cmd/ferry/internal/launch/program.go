package launch

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/framework"
)

// checkDirectory returns nil if ranks can have the working directory dir.
func checkDirectory(dir string) error {
	if dir == "" {
		return nil
	}
	st, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: working directory %s does not exist", framework.ErrConfig, dir)
	case err == nil && !st.IsDir(), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: working directory %s is not a directory", framework.ErrConfig, dir)
	case err == nil:
		err = unix.Access(dir, unix.X_OK)
	}
	if err != nil {
		return fmt.Errorf("%w: working directory %s can't be entered: %w", framework.ErrConfig, dir, errnoOf(err))
	}
	return nil
}

// notExecutable returns the error of starting a program in the directory dir, as
// ErrNotExecutable if the kernel refuses the program itself. It names an interpreter that is
// missing, which the kernel does not.
func notExecutable(program, dir string, err error) error {
	start, ok := errors.AsType[*fs.PathError](err)
	if !ok || start.Op != "fork/exec" || !slices.Contains([]error{syscall.ENOEXEC, syscall.ENOENT, syscall.EACCES}, start.Err) {
		return err
	}
	const deepest = 5 // the kernel's limit for interpreters that are scripts
	for path, i := program, 0; i < deepest; i++ {
		name, remedy := interpreterOf(path)
		if name == "" {
			break
		}
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		if bad := unix.Access(name, unix.X_OK); bad != nil {
			return fmt.Errorf("%w: %s: its interpreter %q: %w: %s", ErrNotExecutable, path, name, bad, remedy)
		}
		path = name
	}
	if errors.Is(err, syscall.ENOEXEC) {
		return fmt.Errorf("%w: %s: %w: it is neither a binary for this machine nor a script with a #! line", ErrNotExecutable, program, syscall.ENOEXEC)
	}
	return fmt.Errorf("%w: %w", ErrNotExecutable, err)
}

// errnoOf returns the system's error in err, or err.
func errnoOf(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}

// interpreterOf returns the interpreter that a script or a binary names, and the remedy if it is
// missing. The name is "" if there is none.
func interpreterOf(path string) (name, remedy string) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", ""
	}
	defer f.Close()
	head := make([]byte, 256) // the kernel reads no more of a script
	n, _ := io.ReadFull(f, head)
	line, isScript := bytes.CutPrefix(head[:n], []byte("#!"))
	if !isScript {
		return loaderOf(f), "install the C library for which the program was built"
	}
	line, _, _ = bytes.Cut(line, []byte("\n"))
	name, _, _ = strings.Cut(strings.Trim(string(line), " \t"), " ")
	name, _, _ = strings.Cut(name, "\t")
	if strings.HasSuffix(name, "\r") {
		return name, "the first line ends with a carriage return; convert the file to Unix line ends"
	}
	return name, "correct the first line"
}

// loaderOf returns the dynamic loader of an ELF binary, or "".
func loaderOf(f io.ReaderAt) string {
	binary, err := elf.NewFile(f)
	if err != nil {
		return ""
	}
	for _, p := range binary.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		path, err := io.ReadAll(io.LimitReader(p.Open(), unix.PathMax))
		if err != nil {
			return ""
		}
		return strings.TrimRight(string(path), "\x00")
	}
	return ""
}
