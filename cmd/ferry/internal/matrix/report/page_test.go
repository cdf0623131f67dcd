package report

import (
	"bytes"
	"strings"
	"testing"
)

func TestWriteHTML_EveryOutcome_MatchesGoldenFiles(t *testing.T) {
	base := read(t, "testdata/pass.json")
	for name, r := range outcomes(t) {
		var b bytes.Buffer
		if err := WriteHTML(&b, r, Compare(base, r, 1.5)); err != nil {
			t.Fatal(err)
		}
		golden(t, name+".html", b.Bytes())
	}
}

// Skipped cases are in a section of their own.
func TestWriteHTML_AllPass_NoFailureSection(t *testing.T) {
	for name, r := range outcomes(t) {
		var b bytes.Buffer
		if err := WriteHTML(&b, r, nil); err != nil {
			t.Fatal(err)
		}
		if says := strings.Contains(b.String(), "What did not pass</h2>"); says != r.Failed() {
			t.Errorf("%s: it says so: %t; the run has failed: %t", name, says, r.Failed())
		}
	}
}
