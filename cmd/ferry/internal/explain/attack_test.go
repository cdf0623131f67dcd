package explain

import (
	"strings"
	"testing"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
)

func TestAttack_ControlCharactersOfARank_AreEscaped(t *testing.T) {
	var out strings.Builder
	e := Explanation{Pairs: []mpi.Pair{{FromRank: 0, ToRank: 1, PML: "ob1", Transport: "tcp", Device: "\x1b[2Jeth0", FeatureNotes: []string{"\x07bell"}}}}
	if err := e.Print(&out, All, 1000); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.ContainsAny(got, "\x1b\x07") || !strings.Contains(got, `\x1b[2Jeth0`) || !strings.Contains(got, `\abell`) {
		t.Errorf("printed %q", got)
	}
}

func TestAttack_TabsOfARank_MakeNoColumns(t *testing.T) {
	var out strings.Builder
	e := Explanation{Pairs: []mpi.Pair{{
		FromRank: 0, ToRank: 1, PML: "ob1", Transport: "tcp", Device: "a\tb\n",
		UnusedAddresses: []framework.Rejection{{Name: "10.9.0.6\t", Reason: "\trefused"}},
	}}}
	if err := e.Print(&out, All, 1000); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, "  a b  ") || !strings.Contains(got, "10.9.0.6  refused") {
		t.Errorf("printed %q", got)
	}
}
