package trial

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ferrympi/ferry/internal/trustedfile"
)

// libraryDirs is where distributions have their libraries.
var libraryDirs = []string{"/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"}

// OnDisk reports whether a library exists in a folder of the dynamic linker. A library that it
// does not find may be in another folder. It returns the error of trustedfile.CheckLibrary, and
// that of Within for a file system that does not answer.
func OnDisk(ctx context.Context, deadline time.Duration, name string) (bool, error) {
	return Within(ctx, deadline, LoadCall(name), func(context.Context) (bool, error) {
		if err := trustedfile.CheckLibrary(name); err != nil {
			return false, err
		}
		return exists(name), nil
	}, func(bool) {})
}

// LoadCall names the call of Within that loads a library. After a call that missed its deadline, further ones fail at once.
func LoadCall(name string) string { return "library " + name }

func exists(name string) bool {
	if strings.Contains(name, "/") {
		_, err := os.Stat(name)
		return err == nil
	}
	for _, pattern := range append(filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")), libraryDirs...) {
		dirs, _ := filepath.Glob(pattern)
		for _, dir := range dirs { // not one pattern: a folder has thousands of libraries, and Glob would list it
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				return true
			}
		}
	}
	return false
}
