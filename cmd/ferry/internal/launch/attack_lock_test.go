package launch

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/needs"
)

// TestAttack_NameOfAJobsDirectory_IsNotLocked: lock neither waits for the other end of a FIFO nor locks a
// directory of another user.
func TestAttack_NameOfAJobsDirectory_IsNotLocked(t *testing.T) {
	base := t.TempDir()
	fifo := filepath.Join(base, "ferry-fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(base, "ferry-directory")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(base, "ferry-link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, link} {
		if f, err := lock(path); err == nil {
			f.Close()
			t.Errorf("locked %s", path)
		}
	}
	needs.Root(t, "give a directory to another user")
	if err := os.Chown(dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if f, err := lock(dir); err == nil {
		f.Close()
		t.Error("locked a directory of another user")
	}
}
