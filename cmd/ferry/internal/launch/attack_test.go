package launch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/attacktest"
)

func TestAttack_LinkInOutputDir_IsNotTruncated(t *testing.T) {
	j := shell(t, 1, "echo overwritten")
	j.OutputDir = t.TempDir()
	precious := attacktest.Link(t, filepath.Join(j.OutputDir, "rank.0"), "precious")
	if _, err := j.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "symbolic link of user 65534") {
		t.Error(err)
	}
	if b, err := os.ReadFile(precious); err != nil || string(b) != "precious" {
		t.Errorf("the target of the link has %q, %v", b, err)
	}
}

func TestOutput_PipeWithoutReaderInOutputDir_IsAnError(t *testing.T) {
	j := shell(t, 1, "echo lost")
	j.OutputDir = t.TempDir()
	if err := unix.Mkfifo(filepath.Join(j.OutputDir, "rank.0"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "rank.0: no process reads from it") {
		t.Error(err)
	}
}
