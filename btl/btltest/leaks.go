package btltest

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// resources are counts of the whole program that show a leak. Go's heap is not included,
// because its live part is unknown.
type resources struct {
	descriptors int
	// Mapped files.
	mappings int
	// Total size of the files that were opened in the case.
	openFileBytes int64
}

// openFiles returns the names of the open files. Some of them, such as the log of the test binary,
// grow by themselves.
func openFiles() map[string]bool {
	names := map[string]bool{}
	descriptors(func(_, name string) { names[name] = true })
	return names
}

// descriptors calls f for each open descriptor with the name of its file.
func descriptors(f func(path, name string)) {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		path := "/proc/self/fd/" + e.Name()
		if name, err := os.Readlink(path); err == nil { // The descriptor of ReadDir is closed.
			f(path, name)
		}
	}
}

func (w *world) resources() (r resources) {
	descriptors(func(path, name string) {
		r.descriptors++
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && !w.filesBefore[name] {
			r.openFileBytes += st.Size()
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
	return fmt.Sprintf("%d descriptors, %d mapped files, %d bytes of open files", r.descriptors, r.mappings, r.openFileBytes)
}

func (r resources) exceeds(before resources) bool {
	return r.descriptors > before.descriptors || r.mappings > before.mappings || r.openFileBytes > before.openFileBytes
}

// checkLeaks fails the case if cycles leak resources after the first settled ones. A module may
// take a moment to end a connection.
func (w *world) checkLeaks(cycles, settled int, cycle func(k int)) {
	var before resources
	for k := range cycles {
		if k == settled {
			before = w.resources()
		}
		cycle(k)
	}
	after, end := w.resources(), time.Now().Add(10*time.Second)
	w.Until("the release of resources", func() bool {
		if !after.exceeds(before) || time.Now().After(end) {
			return true
		}
		w.pollAll()
		after = w.resources()
		return false
	})
	if after.exceeds(before) {
		w.Fatalf("%d cycles: %v before, %v after", cycles-settled, before, after)
	}
}
