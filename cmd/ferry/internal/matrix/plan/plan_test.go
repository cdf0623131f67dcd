package plan

import (
	"regexp"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
)

// TestChoiceOfCasesForOneStackLeavesTheNextItsOwn: stacks share the suite's benchmarks.
func TestChoiceOfCasesForOneStackLeavesTheNextItsOwn(t *testing.T) {
	stacks := []report.Stack{{Name: "a", Via: "btl a"}, {Name: "b", Via: "btl b"}, {Name: "gone", Reason: "no device"}}
	r := &Request{Suite: Quick(), Cases: regexp.MustCompile("^(conform/2/group/empty)?$")}
	p := r.Over(stacks)
	for i, want := range [][]string{{"open", "conform/2/group/empty"}, {"open", "conform/2/group/empty"}, {"open"}} {
		if got := p.Cells(i); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", stacks[i].Name, got, want)
		}
	}
	r.Cases = nil
	if cells := r.Over(stacks).Cells(1); !slices.Contains(cells, "bench/latency") || slices.Contains(cells, "") {
		t.Errorf("all: %q", cells)
	}
}
