package cid

import (
	"errors"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/framework"
	"pgregory.net/rapid"
)

// A random tree of dups, splits and rebases, as all members of a job would create it, never
// assigns an id twice under any base.
func TestDeriver_RandomTree_IDsAreUnique(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bases := uint64(0)
		construct := func() uint64 { bases++; return bases }
		seen := map[Extended]bool{}
		var all []*Deriver
		add := func(id Extended) {
			if seen[id] {
				t.Fatalf("%v was given out twice", id)
			}
			if FromBytes(id.Bytes()) != id {
				t.Fatalf("%v is another one after its travel", id)
			}
			seen[id] = true
			d := NewDeriver(id)
			all = append(all, &d)
		}
		for range rapid.IntRange(1, 3).Draw(t, "roots") {
			add(Extended{Base: construct()})
		}
		for range rapid.IntRange(1, 40).Draw(t, "creations") {
			d := all[rapid.IntRange(0, len(all)-1).Draw(t, "parent")]
			if near := rapid.IntRange(0, 9).Draw(t, "skip"); near == 0 && d.Remaining() > 3 {
				// Children that the test does not examine consume most of the counter.
				if _, err := d.Next(d.Remaining() - 3); err != nil {
					t.Fatal(err)
				}
			}
			ids, err := d.Next(rapid.IntRange(0, 6).Draw(t, "colours"))
			if errors.Is(err, ErrExhausted) {
				d.Rebase(construct())
			} else if err != nil {
				t.Fatal(err)
			}
			for _, id := range ids {
				add(id)
			}
		}
		names := map[string]bool{}
		for id := range seen {
			if names[id.String()] {
				t.Fatalf("two ids are called %v", id)
			}
			names[id.String()] = true
		}
	})
}

func TestDeriver_Exhausted_ConsumesNothing(t *testing.T) {
	d := NewDeriver(Extended{Base: 1})
	ids, err := d.Next(MaxChildren - 1)
	if err != nil || len(ids) != MaxChildren-1 {
		t.Fatalf("%d ids, %v", len(ids), err)
	}
	if _, err := d.Next(2); !errors.Is(err, ErrExhausted) {
		t.Fatalf("two of one left: %v", err)
	}
	last, err := d.Next(1)
	if err != nil || last[0] != (Extended{1, MaxChildren << 48}) || last[0] == ids[len(ids)-1] {
		t.Fatalf("the last one is %v, %v", last, err)
	}
	if _, err := d.Next(1); !errors.Is(err, ErrExhausted) {
		t.Fatalf("none left: %v", err)
	}
	d.Rebase(2)
	if ids, err = d.Next(1); err != nil || ids[0] != (Extended{2, 1 << 48}) {
		t.Fatalf("after a rebase: %v, %v", ids, err)
	}
	if _, err := d.Next(-1); err == nil {
		t.Fatal("-1 children were no error")
	}
}

func TestDeriver_LastLevel_NeedsRebase(t *testing.T) {
	id := Extended{Base: 0x2a}
	for level := range Levels {
		d := NewDeriver(id)
		ids, err := d.Next(2)
		if err != nil {
			t.Fatalf("level %d: %v", level, err)
		}
		id = ids[1]
	}
	if id.String() != "2a/2/2/2/2" {
		t.Errorf("the great-great-grandchild is %v", id)
	}
	d := NewDeriver(id)
	if _, err := d.Next(1); !errors.Is(err, ErrExhausted) || !strings.Contains(err.Error(), "2a/2/2/2/2") {
		t.Fatalf("below the last level: %v", err)
	}
	d.Rebase(0x2b)
	ids, err := d.Next(1)
	if err != nil || ids[0].String() != "2b/1" {
		t.Fatalf("after a rebase: %v, %v", ids, err)
	}
	below := NewDeriver(ids[0])
	if below.Remaining() != MaxChildren {
		t.Errorf("%d children below a rebased one", below.Remaining())
	}
}

func TestDeriver_MoreChildrenThanOneBase_Rebases(t *testing.T) {
	d := NewDeriver(Extended{Base: 1})
	seen := map[Extended]bool{}
	for base := uint64(2); len(seen) < 3*MaxChildren/2; {
		n := min(d.Remaining(), 3*MaxChildren/2-len(seen))
		if n == 0 {
			d.Rebase(base)
			base++
			continue
		}
		ids, err := d.Next(n)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if seen[id] {
				t.Fatalf("%v twice", id)
			}
			seen[id] = true
		}
	}
}

func TestParsePolicy_UnknownName_ReturnsErrConfig(t *testing.T) {
	for p := Auto; p <= PolicyLazy; p++ {
		if got, err := ParsePolicy(p.String()); err != nil || got != p {
			t.Errorf("%v is read as %v, %v", p, got, err)
		}
	}
	if _, err := ParsePolicy("agre"); !errors.Is(err, framework.ErrConfig) || !strings.Contains(err.Error(), `"agre"`) {
		t.Errorf("a misspelt policy: %v", err)
	}
}

func TestAutoPolicy_SizeAndRoom_DecidePolicy(t *testing.T) {
	const big = 64 << 10
	for _, c := range []struct {
		policy        Policy
		members, room int
		want          Policy
		n             int
	}{
		{Auto, 1, big, PolicyAgree, maxAgreeIndices},
		{Auto, 2, big, PolicyAgree, maxAgreeIndices},
		{Auto, 3855, big, PolicyAgree, maxAgreeIndices},
		{Auto, 5000, big, PolicyAgree, 12},
		{Auto, 32768, big, PolicyGather, 1},
		{Auto, 40000, big, PolicyLazy, 0},
		{Auto, 4, 8, PolicyGather, 1},
		{Auto, 4, 7, PolicyLazy, 0},
		{Auto, 0, -1, PolicyLazy, 0},
		{PolicyAgree, 40000, big, PolicyAgree, maxAgreeIndices},
		{PolicyAgree, 4, 0, PolicyLazy, 0},
		{PolicyGather, 40000, big, PolicyGather, 1},
		{PolicyLazy, 2, big, PolicyLazy, 0},
	} {
		if p, n := c.policy.candidatePlan(c.members, c.room); p != c.want || n != c.n {
			t.Errorf("%v, %d members, %d bytes: %v with %d, want %v with %d", c.policy, c.members, c.room, p, n, c.want, c.n)
		}
	}
}

func TestTombstones_Full_DropsOldest(t *testing.T) {
	ts := NewTombstones(3)
	id := func(i int) EndpointID { return EndpointID{Extended{Base: 1}, uint16(i)} }
	for i := 1; i <= 5; i++ {
		ts.Add(id(i))
		ts.Add(id(i))
	}
	for i := 1; i <= 6; i++ {
		if want := i >= 3 && i <= 5; ts.Has(id(i)) != want {
			t.Errorf("has %v: %v", id(i), !want)
		}
	}
}

func TestTombstones_ManyIDs_IsBounded(t *testing.T) {
	const most = 1000
	ts := NewTombstones(most)
	if ts.Has(EndpointID{}) {
		t.Error("the empty record has an id")
	}
	for i := range 3 * most {
		ts.Add(EndpointID{Extended{1, uint64(i / 2)}, uint16(i % 2)})
	}
	if len(ts.recordedIDs) != most || len(ts.idsByAge) != most {
		t.Errorf("%d ids in a ring of %d", len(ts.recordedIDs), len(ts.idsByAge))
	}
}
