package gotool

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/cmd/ferry/internal/version"
	"github.com/ferrympi/ferry/internal/needs"
)

// sources makes a folder that looks like ferry's sources.
func sources(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module "+version.Module+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// refused compares the error of a folder with a part of its text.
func refused(t *testing.T, dir, problem string) {
	t.Helper()
	err := trusted(dir)
	if err == nil || !strings.Contains(err.Error(), problem) || !strings.Contains(err.Error(), "--ferry") {
		t.Errorf("%v, want %q and --ferry", err, problem)
	}
	if status, _ := exit.Of(err); status != exit.Usage {
		t.Errorf("status %d", status)
	}
}

func TestAttack_SourcesOfAnotherUser_AreNotCompiled(t *testing.T) {
	needs.Root(t, "make files of another user")
	dir := sources(t)
	if err := trusted(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	refused(t, dir, "belongs to user 65534")
}

func TestAttack_WritableSources_AreNotCompiled(t *testing.T) {
	dir := sources(t)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	refused(t, dir, "can be written by others")
	refused(t, dir, "chmod -R go-w "+dir)
	if got, err := Find(dir); err != nil || got.Dir != dir {
		t.Errorf("--ferry %s: %v, %v", dir, got, err)
	}
}
