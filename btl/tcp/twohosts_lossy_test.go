package tcp_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ferrympi/ferry/btl/tcp"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/pml/pmltest"
	"github.com/ferrympi/ferry/test/nettest"
)

// Random programs run over links that drop a tenth of the packets each way, and reorder others. Odd ranks
// are on one host, and even ranks on the other. Seeds mostly wait, so that -parallel helps.
func TestTwoHosts_LossyLinks_OutcomesAreEqual(t *testing.T) {
	needs.Time(t)
	whole(t)
	n, first := size[uint64](50, 1), *seed
	if first == 0 && !*full {
		first = 18 // a short one
	}
	start := time.Now()
	var sum sums
	t.Run("seeds", func(t *testing.T) {
		for s := first; s < first+n; s++ {
			t.Run(fmt.Sprintf("seed %d", s), func(t *testing.T) {
				t.Parallel()
				inBadWeather(t, s, &sum)
			})
		}
	})
	t.Logf("%d seeds in %v, one in at most %v: of %d packets %d were lost and %d overtaken",
		n, time.Since(start).Round(time.Second), sum.longest.Round(time.Second), sum.packets, sum.lost, sum.overtaken)
	if sum.lost < sum.packets/20 || sum.overtaken < sum.packets/20 {
		t.Error("no packet was lost or reordered")
	}
}

// sums are the totals of all seeds.
type sums struct {
	sync.Mutex
	packets, lost, overtaken int64
	longest                  time.Duration
}

func inBadWeather(t *testing.T, seed uint64, sum *sums) {
	bad := func(more uint64) nettest.Link {
		return nettest.Link{Faults: &nettest.PacketFaults{Seed: 2*seed + more, LossFraction: 0.1, ReorderFraction: 0.1, PacketDelay: 200 * time.Microsecond}}
	}
	h := nettest.New(t, bad(0), bad(1))
	on := func(rank uint32, f func()) {
		if err := h.Visit(int(rank%2), f); err != nil {
			t.Error(err)
		}
	}
	var all []pmltest.Variant
	for _, v := range []struct{ links, window string }{{"1", "4MiB"}, {"2", "64KiB"}}[:size(2, 1)] {
		st := stack(tcp.Placed{Component: tcp.Component(), On: on})
		st.Set = map[string]string{"btl.tcp.links": v.links, "btl.tcp.window": v.window}
		st.Nodes = 2
		all = append(all, pmltest.Variant{Name: v.links + " links, " + v.window, Policy: cid.PolicyLazy, Stack: st, Limit: 3 * time.Minute})
	}
	begun := time.Now()
	if err := pmltest.Metamorphic(t.Context(), seed, all); err != nil {
		t.Error(err)
	}
	sum.Lock()
	defer sum.Unlock()
	sum.longest = max(sum.longest, time.Since(begun))
	for link := range 2 {
		m := h.Counts(link)
		sum.packets, sum.lost, sum.overtaken = sum.packets+m.Packets.Load(), sum.lost+m.Lost.Load(), sum.overtaken+m.Reordered.Load()
	}
}
