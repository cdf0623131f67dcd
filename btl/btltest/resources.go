package btltest

import (
	"fmt"
	"os"
	"strings"
)

// resources are what a leak shows in, of the whole program: the memory of Go's
// own heap is not among them, because nobody can tell what of it is in use.
type resources struct {
	descriptors int
	mappings    int   // of files
	bytes       int64 // of the files open now that were not before the case
}

// openFiles are the names of the files that are open now: the test binary's
// own log, among others, grows by itself.
func openFiles() map[string]bool {
	names := map[string]bool{}
	if entries, err := os.ReadDir("/proc/self/fd"); err == nil {
		for _, e := range entries {
			if name, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
				names[name] = true
			}
		}
	}
	return names
}

func (w *world) resources() (r resources) {
	if entries, err := os.ReadDir("/proc/self/fd"); err == nil {
		r.descriptors = len(entries)
		for _, e := range entries {
			path := "/proc/self/fd/" + e.Name()
			if name, err := os.Readlink(path); err != nil || w.before[name] {
				continue
			}
			if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() {
				r.bytes += st.Size()
			}
		}
	}
	if maps, err := os.ReadFile("/proc/self/maps"); err == nil {
		for line := range strings.Lines(string(maps)) {
			if strings.Contains(line, "/") {
				r.mappings++
			}
		}
	}
	return r
}

// more reports whether something has grown.
func (r resources) more(before resources) bool {
	return r.descriptors > before.descriptors || r.mappings > before.mappings || r.bytes > before.bytes
}

func (r resources) String() string {
	return fmt.Sprintf("%d descriptors, %d mapped files, %d bytes of open files", r.descriptors, r.mappings, r.bytes)
}
