package server

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// The owner of the directory above replaces an entry before its mode is set.
func TestAttack_LinkTakesTheName_ItsTargetKeepsItsMode(t *testing.T) {
	folder := t.TempDir()
	for name, set := range map[string]func(path string) error{
		"directory": makePrivate,
		"socket":    func(path string) error { return setMode(path, unix.S_IFSOCK, 0o600) },
	} {
		target := filepath.Join(folder, name)
		if err := os.Mkdir(target, 0o755); err != nil {
			t.Fatal(err)
		}
		link := target + "-link"
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		if err := set(link); err == nil {
			t.Errorf("%s: no error", name)
		}
		if st, err := os.Stat(target); err != nil || st.Mode().Perm() != 0o755 {
			t.Errorf("%s: the target is %v, %v", name, st.Mode(), err)
		}
	}
}
