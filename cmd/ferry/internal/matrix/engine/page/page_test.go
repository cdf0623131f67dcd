package page

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/engine"
)

var update = flag.Bool("update", false, "write the pages of testdata again")

// reports is where the reports are that pages are made of, one for each outcome.
const reports = "../testdata"

func read(t testing.TB, file string) *matrix.Report {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := matrix.ReadJSON(f)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return r
}

func TestPagesOfEveryOutcomeAreAsTheyWere(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(reports, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatal("no reports: ", err)
	}
	base := read(t, filepath.Join(reports, "pass.json"))
	for _, file := range files {
		r := read(t, file)
		var b bytes.Buffer
		if err := Write(&b, r, matrix.Compare(base, r, 1.5)); err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(file, ".json") + ".html"
		if *update {
			if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), b.String()); diff != "" {
			t.Errorf("%s (go test -update writes it again):\n%s", name, diff)
		}
	}
}
