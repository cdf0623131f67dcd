package report

import (
	"bytes"
	"testing"
)

func TestPagesOfEveryOutcomeAreAsTheyWere(t *testing.T) {
	base := read(t, "testdata/pass.json")
	for name, r := range outcomes(t) {
		var b bytes.Buffer
		if err := WriteHTML(&b, r, Compare(base, r, 1.5)); err != nil {
			t.Fatal(err)
		}
		golden(t, name+".html", b.Bytes())
	}
}
