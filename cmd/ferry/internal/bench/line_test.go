package bench

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The ranks were killed before both had opened the shared line.
func TestLine_FilesOfKilledRanks_AreRemoved(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	for name, age := range map[string]time.Duration{
		"ferry-hop-1-1": 2 * oldLine, "ferry-hop-2-2": time.Second, "ferry-1-1": 2 * oldLine,
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	removeOldLines(dir, now)
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 || left[0].Name() != "ferry-1-1" || left[1].Name() != "ferry-hop-2-2" {
		t.Errorf("left: %v, %v; want what is new, and what is not a line", left, err)
	}
}
