package trial

import (
	"os"
	"path/filepath"
	"strings"
)

// libraryDirs is where distributions have their libraries.
var libraryDirs = []string{"/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"}

// OnDisk reports whether a library is where the dynamic linker will find it. That
// it is not seen here says nothing.
func OnDisk(name string) bool {
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
