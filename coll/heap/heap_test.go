package heap

import (
	"strings"
	"testing"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/internal/ring"
	"github.com/ferrympi/ferry/progress"
)

func newNode() *Node {
	bell := progress.BellAt(ring.Aligned(progress.BellSize))
	return New([]int{3, 5, 8}, func(int) progress.RemoteBell { return bell })
}

func TestArea_OpenedByAnotherMember_IsTheSameMemory(t *testing.T) {
	n := newNode()
	a, err := n.NodeOf(3).NewArea(128)
	if err != nil {
		t.Fatal(err)
	}
	b, err := n.NodeOf(8).OpenArea(3, a.Number, 128)
	if err != nil {
		t.Fatal(err)
	}
	if a.Bytes[7] = 9; b.Bytes[7] != 9 {
		t.Error("the areas differ")
	}
	a.Hide()
	if _, err := n.NodeOf(5).OpenArea(3, a.Number, 128); err == nil {
		t.Error("a hidden area was opened")
	}
	a.Close()
	if n.Len() != 0 {
		t.Errorf("%d entries are left", n.Len())
	}
}

func TestArea_WrongMemberNumberOrSize_IsAnError(t *testing.T) {
	n := newNode()
	a, _ := n.NodeOf(3).NewArea(128)
	number, _ := n.NodeOf(3).(coll.Heap).Share("no area")
	for _, x := range []struct {
		rank   int
		number uint32
		size   int
	}{{3, a.Number, 64}, {3, a.Number + 100, 128}, {5, a.Number, 128}, {4, a.Number, 128}, {3, number, 128}} {
		if _, err := n.NodeOf(8).OpenArea(x.rank, x.number, x.size); err == nil || !strings.Contains(err.Error(), "rank") {
			t.Errorf("%+v: %v", x, err)
		}
	}
}

func TestShared_Value_IsFoundUntilItIsReleased(t *testing.T) {
	n := newNode()
	value := new(int)
	number, release := n.NodeOf(5).(coll.Heap).Share(value)
	if got, err := n.NodeOf(3).(coll.Heap).Shared(5, number); err != nil || got != value {
		t.Errorf("%v, %v", got, err)
	}
	release()
	if _, err := n.NodeOf(3).(coll.Heap).Shared(5, number); err == nil || n.Len() != 0 {
		t.Errorf("found after its release; %d entries", n.Len())
	}
}

func TestBell_RankOfAnotherProcess_IsAnError(t *testing.T) {
	n := newNode()
	if _, _, err := n.NodeOf(3).Bell(3); err != nil {
		t.Error(err)
	}
	if _, _, err := n.NodeOf(3).Bell(4); err == nil {
		t.Error("no error")
	}
}
