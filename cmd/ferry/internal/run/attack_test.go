package run

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/internal/attacktest"
)

func TestAttack_LinkAtTimingFile_IsNotTruncated(t *testing.T) {
	path := t.TempDir() + "/timing"
	precious := attacktest.Link(t, path, "precious")
	if _, err := openTiming(path, io.Discard); err == nil || !strings.Contains(err.Error(), "symbolic link of user 65534") {
		t.Error(err)
	}
	if b, err := os.ReadFile(precious); err != nil || string(b) != "precious" {
		t.Errorf("the target of the link has %q, %v", b, err)
	}
}
