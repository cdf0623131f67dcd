package base

import (
	"slices"
	"testing"

	"github.com/ferrympi/ferry/pml"
)

func TestToAsk_LargeCommunicator_HasTheUsedAndTheNamed(t *testing.T) {
	for n, want := range map[int][]int{maxInquired: nil, maxInquired + 1: {7, 900, 1000}} {
		procs, _, _ := lazy(n)
		c := world(t, procs, n)
		used := NewTable[*int](n, true)
		used.Set(7, new(int))
		used.Set(900, new(int))
		var q Inquiries
		q.RecordProcess(incarnation(1000).ID)
		q.RecordProcess(incarnation(5000).ID) // Not a member.
		got := slices.Sorted(RanksToAsk(c, &used, &q))
		if want == nil {
			for rank := range n {
				want = append(want, rank)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("of %d members, %d are asked: %v", n, len(got), got)
		}
	}
}

func TestToAsk_ProcessWithSeveralRanks_HasAllOfThem(t *testing.T) {
	procs, _, _ := lazy(3)
	var pairs [][2]int
	for i := range maxInquired {
		pairs = append(pairs, [2]int{2, i})
	}
	c := &Comm[*failing]{State: State{Spec: pml.CommSpec{Members: members(append([][2]int{{0, 0}, {1, 1}, {1, 0}}, pairs...)...)}}}
	var err error
	if c.roster, err = procs.roster(c.Spec.Members); err != nil {
		t.Fatal(err)
	}
	used := NewTable[*int](c.Len(), false)
	var q Inquiries
	q.RecordProcess(incarnation(1).ID)
	if got := slices.Sorted(RanksToAsk(c, &used, &q)); !slices.Equal(got, []int{1, 2}) {
		t.Errorf("asked are %v", got)
	}
}

func TestAsked_EachEvent_IsDueOnce(t *testing.T) {
	var q Inquiries
	var asked InquiryMark
	for event := range 3 {
		if first, again := asked.IsDue(&q), asked.IsDue(&q); !first || again {
			t.Errorf("after %d events: %t, then %t", event, first, again)
		}
		q.RecordEvent()
	}
}
