package shm

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/btl/segment"
)

// A job beside the launcher's own may be about to name its segments, or to inspect them after a
// crash.
func TestRemoveJobSegments_OtherJobsPresent_LeavesTheirSegments(t *testing.T) {
	dir, fallback := t.TempDir(), t.TempDir()
	dead := filepath.Join(dir, jobPrefix("job-a")+"0-1")
	others := filepath.Join(dir, jobPrefix("job-b")+"0-1")
	short := filepath.Join(fallback, strings.Replace(filepath.Base(dead), usualName, fallbackName, 1)) // The segment found no space in dir.
	for _, path := range []string{dead, others, short} {
		if err := os.WriteFile(path, nil, 0o600); err != nil { // No process holds its lock.
			t.Fatal(err)
		}
	}
	alive, err := segment.Files{}.Create(filepath.Join(dir, jobPrefix("job-a")+"1-1"), segment.PageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	removed, err := RemoveJobSegments(dir, fallback, "job-a")
	if err != nil || !slices.Equal(removed, []string{dead, short}) {
		t.Errorf("removed %v, error %v; want %s and %s", removed, err, dead, short)
	}
	for _, path := range []string{others, alive.Path()} {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("gone: %v", err)
		}
	}
}
