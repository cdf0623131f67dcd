package trial

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ferrympi/ferry/internal/trustedfile"
)

// libraryDirs are the library folders of distributions.
var libraryDirs = []string{"/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"}

// OnDisk reports whether a library exists in a folder of the dynamic linker. It may be in a folder that OnDisk does not know. OnDisk returns the
// error of trustedfile.CheckLibrary, and that of Within for a file system that does not respond.
func OnDisk(ctx context.Context, deadline time.Duration, name string) (bool, error) {
	return Within(ctx, deadline, LoadCall(name), func(context.Context) (bool, error) {
		if err := trustedfile.CheckLibrary(name); err != nil {
			return false, err
		}
		return exists(name), nil
	}, func(bool) {})
}

// LoadCall returns the name for Within of the call that loads a library. After one call missed its deadline, further ones fail at once.
func LoadCall(name string) string { return "library " + name }

func exists(name string) bool {
	if strings.Contains(name, "/") {
		_, err := os.Stat(name)
		return err == nil
	}
	for _, pattern := range append(filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")), libraryDirs...) {
		dirs, _ := filepath.Glob(pattern)
		for _, dir := range dirs { // One pattern would list the thousands of files of each folder.
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				return true
			}
		}
	}
	return false
}
