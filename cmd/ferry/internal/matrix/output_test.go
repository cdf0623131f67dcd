package matrix

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
)

// Neither a partial nor the final report may leave other files.
func TestReport_WriteFails_KeepsEarlierOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	outs, err := (&options{jsonPath: settings.JSON(path)}).open(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer outs.close()
	if files, _ := os.ReadDir(filepath.Dir(path)); len(files) > 0 {
		t.Errorf("a run that is killed leaves %v", files)
	}
	if err := outs.save(&report.Report{EndReason: "not yet"}, nil, false); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	full := errors.New("no space left")
	outs[0].writeReport = func(w io.Writer, _ *report.Report, _ *report.Comparison) error {
		_, _ = w.Write([]byte("half"))
		return full
	}
	if err := outs.save(&report.Report{}, nil, true); !errors.Is(err, full) {
		t.Error(err)
	}
	after, err := os.ReadFile(path)
	if err != nil || string(after) != string(before) {
		t.Errorf("%q, %v: want %q", after, err, before)
	}
	if files, _ := os.ReadDir(filepath.Dir(path)); len(files) != 1 {
		t.Errorf("it leaves %v", files)
	}
}
