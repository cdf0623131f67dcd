package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSocketDir_UnusableCandidates_AreSkipped(t *testing.T) {
	base := t.TempDir()
	long := filepath.Join(base, strings.Repeat("x", socketDirLimit))
	file := filepath.Join(base, "f")
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if dir, err := socketDir([]string{"", long, file, "/nonexistent", "/tmp"}); dir != "/tmp" || err != nil {
		t.Errorf("%q, %v", dir, err)
	}
	_, err := socketDir([]string{"", long, "/nonexistent"})
	if err == nil || !strings.Contains(err.Error(), "the limit is 50; /nonexistent: no such file or directory; set TMPDIR") {
		t.Error(err)
	}
	if entries, err := os.ReadDir(long); len(entries) > 0 || err != nil {
		t.Errorf("%v, %v", entries, err)
	}
}
