package launch

import (
	"os"
	"os/exec"
	"slices"
	"testing"
)

// FuzzWaits checks that cycles consist of ranks with reports.
func FuzzWaits(f *testing.F) {
	f.Add([]byte(`{"waits":[{"what":"waits in Recv","on":[1]}],"more":2}`), []byte(`{"waits":[{"what":"waits in Send","on":[0,1]}]}`))
	f.Add([]byte(`{"waits":[{"what":"x","on":[0]}]}`), []byte(`{"waits":[{"on":[-1]}],"more":-1,"queues":"q","stacks":"goroutine 1"}`))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		s := &supervisor{hang: hang{askedRanks: []int{0, 1, 2}, reportByRank: map[int]blockedCalls{}}} // Rank 2 does not report.
		s.addWaits(Report{Rank: 0, Body: first})
		s.addWaits(Report{Rank: 1, Body: second})
		self := &rank{cmd: &exec.Cmd{Process: &os.Process{Pid: os.Getpid()}}}
		for n := range 3 {
			if lines := s.hang.lines(n, self); len(lines) == 0 || len(lines) > maxListed+1 {
				t.Errorf("%d lines about rank %d", len(lines), n)
			}
		}
		if all := s.hang.cycles(); len(all) > 2 || slices.Contains(all, "") {
			t.Errorf("cycles %q", all)
		}
	})
}
