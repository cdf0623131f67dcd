package segment

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func create(t *testing.T, path string) *file {
	t.Helper()
	seg, err := new(Files).Create(path, PageSize)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { seg.Close() })
	return seg.(*file)
}

// holder returns the process that holds the lock of the mark at 16. Unlike F_GETLK, F_OFD_GETLK reports it to the
// holder, too.
func holder(t *testing.T, f *file) int {
	t.Helper()
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: 16, Len: 1}
	if err := unix.FcntlFlock(uintptr(f.fd), unix.F_OFD_GETLK, &lock); err != nil {
		t.Fatal(err)
	}
	if lock.Type == unix.F_UNLCK {
		return 0
	}
	return int(lock.Pid)
}

func mustOpen(t *testing.T, path string) Segment {
	t.Helper()
	seg, err := new(Files).Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return seg
}

func mustClose(t *testing.T, seg Segment) {
	t.Helper()
	if err := seg.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestMark_SameProcessClosesTheFileElsewhere_Lasts(t *testing.T) {
	prefix := "ferry-test-mark-" + filepath.Base(t.TempDir())
	path := filepath.Join(dir, prefix)
	f := create(t, path)
	openedBefore := mustOpen(t, path)
	if err := f.Mark(16, 8); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		close func()
	}{
		{"nothing", func() {}},
		{"Close of a segment that was opened before the mark", func() { mustClose(t, openedBefore) }},
		{"Open and Close", func() { mustClose(t, mustOpen(t, path)) }},
		{"RemoveStale", func() {
			if removed, err := new(Files).RemoveStale(dir, prefix); err != nil || len(removed) != 0 {
				t.Errorf("removed %v, %v", removed, err)
			}
		}},
	} {
		if c.close(); holder(t, f) != os.Getpid() {
			t.Fatalf("after %s: process %d holds the mark, want %d", c.name, holder(t, f), os.Getpid())
		}
	}
	if pid, length, err := f.Marker(16); err != nil || pid != os.Getpid() || length != 8 {
		t.Errorf("Marker: %d, %d, %v", pid, length, err)
	}
}

// descriptors returns the number of open descriptors of a file.
func descriptors(t *testing.T, file os.FileInfo) (n int) {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if st, err := os.Stat(link); err == nil && os.SameFile(st, file) {
			n++
		}
	}
	return n
}

func TestMark_RepeatedOpenAndClose_LeavesNoDescriptors(t *testing.T) {
	path := filepath.Join(dir, "ferry-test-mark-"+filepath.Base(t.TempDir()))
	f := create(t, path)
	if err := f.Mark(16, 8); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		a, b := mustOpen(t, path), mustOpen(t, path)
		mustClose(t, a)
		mustClose(t, b)
	}
	if n := descriptors(t, st); n != 3 {
		t.Errorf("%d descriptors, want one and those of two segments", n)
	}
	last := mustOpen(t, path)
	mustClose(t, f)
	if n := descriptors(t, st); n != 1 {
		t.Errorf("%d descriptors after Close of the marked segment, want that of the open one", n)
	}
	mustClose(t, last)
	if n := descriptors(t, st); n != 0 {
		t.Errorf("%d descriptors after Close of all segments", n)
	}
}
