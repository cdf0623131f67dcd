package matrix

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
	"github.com/ferrympi/ferry/internal/attacktest"
)

// The writer of the folder of a report exchanges its name for links, at any moment.
func TestAttack_FlippedLinkAtReport_DeletesNoFile(t *testing.T) {
	path := t.TempDir() + "/report.json"
	precious := attacktest.Link(t, path, "precious")
	attacktest.Own(t, filepath.Dir(path))
	stop := attacktest.Flip(t, path, precious, "")
	defer stop()
	for range 1000 {
		outs, err := (&options{jsonPath: settings.JSON(path)}).open(io.Discard)
		if err == nil {
			_ = outs.save(&report.Report{}, nil, true)
			outs.close()
		}
		if b, err := os.ReadFile(precious); err != nil || string(b) != "precious" {
			t.Fatalf("the target of the link has %q, %v", b, err)
		}
	}
}
