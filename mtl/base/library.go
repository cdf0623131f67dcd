package base

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/trustedfile"
	"github.com/ferrympi/ferry/mtl/trial"
)

// Library is the file of a C library, and the time limit for loading it.
type Library struct {
	File     string
	Deadline time.Duration
}

// Available reports whether a library can be used. It calls load only if it does not find the file, because loading takes longer than
// the rest of a process's start. built is the reason why the program has no support for the library, or nil.
func (l Library) Available(ctx context.Context, built error, load func() error, remedy string) framework.Verdict {
	if built != nil {
		return framework.Verdict{
			Status: framework.StatusNotBuilt, Reason: built.Error(),
			Hint: "install a C compiler, in Debian gcc and libc6-dev, and build again",
		}
	}
	isFound, err := LoadLibrary(ctx, l, func(file string) (bool, error) { return exists(file), nil })
	if err == nil && !isFound {
		err = load()
	}
	if err != nil {
		return framework.Unavailable(err.Error(), trustedfile.Remedy(err, remedy))
	}
	return framework.Usable()
}

// LoadLibrary calls load with the file of a library, and drops a late result. It refuses a file that another user can change. After one
// call missed its deadline, further ones for the file fail at once.
func LoadLibrary[L any](ctx context.Context, l Library, load func(file string) (L, error)) (L, error) {
	lib, err := trial.Within(ctx, l.Deadline, "library "+l.File, func(context.Context) (lib L, err error) {
		if err := trustedfile.CheckLibrary(l.File); err != nil {
			return lib, err
		}
		return load(l.File)
	}, func(L) {})
	if errors.Is(err, trial.ErrHangs) {
		err = fmt.Errorf("%s was not loaded within %v: %w", l.File, l.Deadline, err)
	}
	return lib, err
}

// libraryDirs are the library folders of distributions.
var libraryDirs = []string{"/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"}

// exists reports whether a library is in a folder of the dynamic linker. It may be in a folder that exists does not know.
func exists(file string) bool {
	if strings.Contains(file, "/") {
		_, err := os.Stat(file)
		return err == nil
	}
	for _, pattern := range append(filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")), libraryDirs...) {
		dirs, _ := filepath.Glob(pattern)
		for _, dir := range dirs { // One pattern would list the thousands of files of each folder.
			if _, err := os.Stat(filepath.Join(dir, file)); err == nil {
				return true
			}
		}
	}
	return false
}

// FindDevice returns the name and the folder of the first device with hardware for which is returns true, or empty texts. Devices in software,
// such as RDMA over a plain Ethernet interface, have no hardware. pattern selects the devices by their folder and name in class of sys,
// such as infiniband/hfi1*, or infiniband/ for all names (path.Match).
func FindDevice(sys, pattern string, is func(name string) bool) (name, hardware string) {
	class, names := path.Split(pattern)
	found, _ := os.ReadDir(filepath.Join(sys, "class", class)) // Empty if the folder is missing.
	for _, entry := range found {
		name = entry.Name()
		isNamed, _ := path.Match(cmp.Or(names, "*"), name)
		hardware = filepath.Join(sys, "class", class, name, "device")
		if _, err := os.Stat(hardware); err == nil && isNamed && is(name) {
			return name, hardware
		}
	}
	return "", ""
}
