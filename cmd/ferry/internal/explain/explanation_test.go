package explain

import (
	"strings"
	"testing"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
)

// The number of pairs is the square of the number of ranks.
func TestPrint_UnusedAddress_IsPrintedOnceForItsPairs(t *testing.T) {
	docker := framework.Rejection{Name: "docker0", Reason: "no peer is told: such a network ends at its host"}
	e := Explanation{}
	for from := range 4 {
		for to := range 4 {
			e.Pairs = append(e.Pairs, mpi.Pair{FromRank: from, ToRank: to, UnusedAddresses: []framework.Rejection{docker}})
		}
	}
	e.Pairs[1].UnusedAddresses = append(e.Pairs[1].UnusedAddresses, framework.Rejection{Name: "10.9.0.6", Reason: "connection refused"})
	var out strings.Builder
	if err := e.Print(&out, All, 1000); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"\nADDRESS   NOT USED BECAUSE                                  PAIRS\n",
		"\ndocker0   no peer is told: such a network ends at its host  0-3 x 0-3, 0-3 x itself\n",
		"\n10.9.0.6  connection refused                                0 x 1\n",
	} {
		if strings.Count(out.String(), line) != 1 {
			t.Errorf("want %q once:\n%s", line, out.String())
		}
	}
}
