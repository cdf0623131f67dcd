package btltest

import (
	"fmt"
	"os"
	"strings"
	"time"
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
	descriptors(func(_, name string) { names[name] = true })
	return names
}

// descriptors calls f for each that is open, with the name of its file.
func descriptors(f func(path, name string)) {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		path := "/proc/self/fd/" + e.Name()
		if name, err := os.Readlink(path); err == nil { // else it was for ReadDir
			f(path, name)
		}
	}
}

func (w *world) resources() (r resources) {
	descriptors(func(path, name string) {
		r.descriptors++
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && !w.before[name] {
			r.bytes += st.Size()
		}
	})
	maps, _ := os.ReadFile("/proc/self/maps")
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "/") {
			r.mappings++
		}
	}
	return r
}

func (r resources) String() string {
	return fmt.Sprintf("%d descriptors, %d mapped files, %d bytes of open files", r.descriptors, r.mappings, r.bytes)
}

func (r resources) exceed(before resources) bool {
	return r.descriptors > before.descriptors || r.mappings > before.mappings || r.bytes > before.bytes
}

// growsNothing fails if something is left behind by the cycles that follow those in which
// things settle. A module may take a moment to end a connection.
func (w *world) growsNothing(cycles, settled int, cycle func(k int)) {
	var before resources
	for k := range cycles {
		if k == settled {
			before = w.resources()
		}
		cycle(k)
	}
	after, end := w.resources(), time.Now().Add(10*time.Second)
	w.Until("resources are given back", func() bool {
		if !after.exceed(before) || time.Now().After(end) {
			return true
		}
		w.pollAll()
		after = w.resources()
		return false
	})
	if after.exceed(before) {
		w.Fatalf("%d cycles: %v before, %v after", cycles-settled, before, after)
	}
}
