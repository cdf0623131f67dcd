package cid

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ferrympi/ferry/framework"
	"pgregory.net/rapid"
)

var stateNames = [...]string{"free", "withheld", "live", "quarantined", "stale"}

func (s State) String() string { return stateNames[s] }

func reserve(t *testing.T, table *Table) Local {
	t.Helper()
	l, err := table.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLocal_Zero_IsInvalid(t *testing.T) {
	var l Local
	if l != NoLocal || l.Valid() || l.String() != "none" || NewTable(4).State(l) != Free {
		t.Error("the zero Local is something")
	}
	for _, c := range [][2]uint32{{0, 1}, {1<<IndexBits - 1, MaxGen}, {17, 3}} {
		if l := MakeLocal(c[0], c[1]); l.Index() != c[0] || l.Gen() != c[1] || !l.Valid() {
			t.Errorf("%v of %v", l, c)
		}
	}
	if l := MakeLocal(1<<IndexBits+5, MaxGen+2); l.Index() != 5 || l.Gen() != 1 {
		t.Errorf("excess bits leak: %v", l)
	}
}

func TestTable_ReusedIndex_OldLocalIsStale(t *testing.T) {
	table := NewTable(0) // One index, which is reused at once.
	old := reserve(t, table)
	if s := table.State(old); s != Live {
		t.Fatalf("reserved: %v", s)
	}
	table.Close(old)
	if s := table.State(old); s != Stale {
		t.Errorf("closed: %v", s)
	}
	young := reserve(t, table)
	if young == old || young.Index() != old.Index() {
		t.Fatalf("%v after %v", young, old)
	}
	if s := table.State(old); s != Stale {
		t.Errorf("the old id: %v", s)
	}
	table.Close(old) // It must not close the new communicator.
	table.Quarantine(old)
	if s := table.State(young); s != Live {
		t.Errorf("the new id after a late close of the old: %v", s)
	}
}

func TestTable_GenerationWraps_SkipsZero(t *testing.T) {
	table := NewTable(0)
	last := NoLocal
	for range 2*MaxGen + 10 {
		l := reserve(t, table)
		if !l.Valid() || l == last {
			t.Fatalf("%v (generation %d) after %v", l, l.Gen(), last)
		}
		if last.Gen() != MaxGen && l.Gen() != last.Gen()+1 {
			t.Fatalf("%v after %v", l, last)
		}
		table.Close(l)
		last = l
	}
}

func TestReserve_ClosedIndex_IsReusedLate(t *testing.T) {
	table := NewTable(IndexBits)
	first := reserve(t, table)
	table.Close(first)
	for i := range firstWindow/2 - 1 {
		l := reserve(t, table)
		if l.Index() == first.Index() {
			t.Fatalf("used again after %d others", i)
		}
		table.Close(l)
	}
	if l := reserve(t, table); l.Index() != first.Index() || l.Gen() != 2 {
		t.Errorf("the table grows for ever: %v after a whole round", l)
	}
	if len(table.slots) > firstWindow {
		t.Errorf("%d slots for one live communicator", len(table.slots))
	}
}

func TestReserve_FullTable_ErrorHasCounts(t *testing.T) {
	for bits := range 5 {
		table := NewTable(bits)
		seen := map[uint32]bool{}
		var ids []Local
		for range 1 << bits {
			l := reserve(t, table)
			if seen[l.Index()] || l.Index() >= 1<<bits {
				t.Fatalf("%d bits: %v", bits, l)
			}
			seen[l.Index()] = true
			ids = append(ids, l)
		}
		table.Quarantine(ids[0])
		_, err := table.Reserve()
		if !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), fmt.Sprintf("1 quarantined, 0 withheld, of the %d", 1<<bits)) {
			t.Errorf("%d bits: %v", bits, err)
		}
		if o := table.withhold(Auto, 3); len(o.entries) != 0 {
			t.Errorf("%d bits: a full table offers %v", bits, o.entries)
		}
		table.EndQuarantine(ids[0])
		if l := reserve(t, table); l.Index() != ids[0].Index() {
			t.Errorf("%d bits: %v, only %v was free", bits, l, ids[0])
		}
	}
}

func TestReserve_FortyThousandLive_Succeeds(t *testing.T) {
	table := NewTable(17)
	for range 1 << 17 {
		reserve(t, table)
	}
	if _, live, _ := table.Counts(); live != 1<<17 {
		t.Errorf("%d live", live)
	}
}

// After the even indices, candidates may take every odd one of several windows. Reserve must
// still terminate, and find a free index.
func TestReserve_OddIndicesWithheld_FindsFreeOne(t *testing.T) {
	table := NewTable(16)
	var offers []*Candidates
	for range 3 {
		offers = append(offers, table.withhold(Auto, maxCandidates)) // 49149 of 65536 indices
	}
	l := reserve(t, table)
	for _, o := range offers {
		table.Release(o)
	}
	if s := table.State(l); s != Live {
		t.Errorf("%v is %v", l, s)
	}
}

func TestNewTable_WidthOutOfRange_IsClamped(t *testing.T) {
	if NewTable(-3).indexCount != 1 || NewTable(40).indexCount != 1<<IndexBits {
		t.Error("widths are not clamped")
	}
}

func TestWithholdCandidates_ConcurrentConstructs_IndicesDiffer(t *testing.T) {
	table := NewTable(4)
	a, b := table.withhold(Auto, 5), table.withhold(Auto, 5)
	l := reserve(t, table)
	seen := map[uint32]bool{l.Index(): true}
	for _, e := range append(append([]Local{}, a.entries...), b.entries...) {
		if seen[e.Index()] {
			t.Errorf("index %d twice", e.Index())
		}
		seen[e.Index()] = true
		if s := table.State(MakeLocal(e.Index(), 1)); s != Withheld {
			t.Errorf("index %d is %v: a fast member's message would be dropped", e.Index(), s)
		}
	}
	held := MakeLocal(a.entries[2].Index(), 1)
	if err := table.Accept(a, held); err != nil {
		t.Fatal(err)
	}
	table.Release(b)
	table.Release(b)
	if withheld, live, _ := table.Counts(); withheld != 0 || live != 2 {
		t.Errorf("%d withheld, %d live", withheld, live)
	}
	if s := table.State(held); s != Live {
		t.Errorf("accepted: %v", s)
	}
}

func TestAccept_ForeignID_ReturnsError(t *testing.T) {
	table := NewTable(4)
	old := table.withhold(Auto, 1)
	first := MakeLocal(old.entries[0].Index(), 7)
	if err := table.Accept(old, first); err != nil {
		t.Fatal(err)
	}
	table.Close(first)
	o := table.withhold(Auto, 2)
	for name, l := range map[string]Local{
		"no id":               NoLocal,
		"generation 0":        MakeLocal(o.entries[1].Index(), 0),
		"the last generation": first,
		"an index of others":  MakeLocal(9, 1),
	} {
		if err := table.Accept(o, l); err == nil {
			t.Errorf("%s: accepted %v", name, l)
		}
	}
	if err := NewTable(4).Accept(o, MakeLocal(first.Index(), 8)); err == nil {
		t.Error("another table accepted the offer")
	}
	if s := table.State(MakeLocal(first.Index(), 8)); s != Withheld {
		t.Errorf("after refusals: %v", s)
	}
	if err := table.Accept(o, MakeLocal(first.Index(), 8)); err != nil {
		t.Error(err)
	}
	if err := table.Accept(o, MakeLocal(first.Index(), 9)); err == nil {
		t.Error("an offer was accepted twice")
	}
}

// Three processes with overlapping groups, concurrent constructs, lazy ids, closes and
// quarantines, in narrow tables. Members decide alike, and no process has two communicators
// with one index, or the same generation twice in a row.
func TestTable_OverlappingGroups_IDsNeverMix(t *testing.T) {
	type construct struct {
		members []int
		offers  []*Candidates
		bytes   [][]byte
	}
	rapid.Check(t, func(t *rapid.T) {
		tables := make([]*Table, 3)
		live := make([]map[uint32]Local, 3)
		last := make([]map[uint32]Local, 3)
		quarantined := make([][]Local, 3)
		for i := range tables {
			tables[i] = NewTable(rapid.IntRange(0, 4).Draw(t, "bits"))
			live[i], last[i] = map[uint32]Local{}, map[uint32]Local{}
		}
		var open []construct
		born := func(p int, l Local) {
			if old, ok := live[p][l.Index()]; ok {
				t.Fatalf("process %d: %v while %v lives", p, l, old)
			}
			if l == last[p][l.Index()] {
				t.Fatalf("process %d: %v twice in a row", p, l)
			}
			live[p][l.Index()], last[p][l.Index()] = l, l
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			p := rapid.IntRange(0, 2).Draw(t, "process")
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				if l, err := tables[p].Reserve(); err == nil {
					born(p, l)
				}
			case 1: // Start a construct.
				c := construct{}
				for m := range tables {
					if m != p || rapid.Bool().Draw(t, "all") {
						o := tables[m].WithholdCandidates(rapid.SampledFrom([]Policy{Auto, PolicyAgree, PolicyGather}).Draw(t, "policy"), 3, 4+4*rapid.IntRange(1, 4).Draw(t, "room"))
						c.members, c.offers, c.bytes = append(c.members, m), append(c.offers, o), append(c.bytes, o.Bytes())
					}
				}
				open = append(open, c)
			case 2: // End it.
				if len(open) == 0 {
					continue
				}
				c := open[0]
				open = open[1:]
				d, err := Decide(c.bytes)
				for i, m := range c.members {
					if err != nil || d.Policy == PolicyLazy {
						tables[m].Release(c.offers[i])
						continue
					}
					if s := tables[m].State(d.Local(i)); s != Withheld {
						t.Fatalf("process %d: a fast member's message to %v would find it %v", m, d.Local(i), s)
					}
					if err := tables[m].Accept(c.offers[i], d.Local(i)); err != nil {
						t.Fatal(err)
					}
					born(m, d.Local(i))
				}
			case 3, 4: // Close, with or without a quarantine.
				for _, i := range slices.Sorted(maps.Keys(live[p])) {
					l := live[p][i]
					switch {
					case slices.Contains(quarantined[p], l), rapid.Bool().Draw(t, "stays"):
					case rapid.Bool().Draw(t, "quarantine"):
						tables[p].Quarantine(l)
						quarantined[p] = append(quarantined[p], l)
					default:
						tables[p].Close(l)
						delete(live[p], i)
					}
				}
			case 5:
				for _, l := range quarantined[p] {
					tables[p].EndQuarantine(l)
					delete(live[p], l.Index())
				}
				quarantined[p] = nil
			}
			for p, table := range tables {
				for i, l := range last[p] {
					want := Stale
					switch {
					case slices.Contains(quarantined[p], l):
						want = Quarantined
					case live[p][i] == l:
						want = Live
					}
					if s := table.State(l); s != want {
						t.Fatalf("process %d: %v is %v, not %v", p, l, s, want)
					}
				}
			}
		}
		for _, c := range open {
			for i, m := range c.members {
				tables[m].Release(c.offers[i])
			}
		}
		for p, table := range tables {
			withheld, alive, quarantinedCount := table.Counts()
			if withheld != 0 || alive+quarantinedCount != len(live[p]) || quarantinedCount != len(quarantined[p]) {
				t.Fatalf("process %d: %d withheld, %d live, %d quarantined; model %d and %d", p, withheld, alive, quarantinedCount, len(live[p]), len(quarantined[p]))
			}
		}
	})
}

func TestTable_ConcurrentCreations_ShareNoIndex(t *testing.T) {
	table := NewTable(10)
	var mu sync.Mutex
	held := map[uint32]Local{}
	var group sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			for i := range 500 {
				l, err := table.Reserve()
				if g%2 == 0 {
					o := table.withhold(Auto, 4)
					table.Close(l)
					if l, _, err = agreed([][]byte{o.Bytes()}); err == nil {
						err = table.Accept(o, l)
					}
				}
				mu.Lock()
				if other, ok := held[l.Index()]; err != nil || ok {
					t.Errorf("%v beside %v: %v", l, other, err)
				}
				held[l.Index()] = l
				mu.Unlock()
				if i%4 == 0 {
					continue // It stays open to the end.
				}
				mu.Lock()
				delete(held, l.Index())
				mu.Unlock()
				table.Close(l)
			}
		})
	}
	group.Wait()
	if withheld, live, _ := table.Counts(); withheld != 0 || live != len(held) {
		t.Errorf("%d withheld, %d live, %d in the model", withheld, live, len(held))
	}
}
