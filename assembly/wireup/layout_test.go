package wireup

import (
	"math/bits"
	"slices"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"pgregory.net/rapid"
)

// drawLayout draws a map and a group of runs, and returns the layout, and the rank and node of each member.
func drawLayout(t *rapid.T) (l *Layout, ranks, nodes []uint32) {
	size := rapid.IntRange(1, 300).Draw(t, "size")
	var runs []bootstrap.NodeRun
	for first := 0; first < size; {
		n := min(rapid.IntRange(1, 8).Draw(t, "count"), size-first)
		runs = append(runs, bootstrap.NodeRun{First: uint32(first), Count: uint32(n), Node: uint32(rapid.IntRange(0, 90).Draw(t, "node"))})
		first += n
	}
	m, err := bootstrap.MakeNodeMap(0, size, runs)
	if err != nil {
		t.Fatal(err)
	}
	used := make([]bool, size)
	for len(ranks) == 0 || rapid.IntRange(0, 3).Draw(t, "end") > 0 {
		rank, stride := rapid.IntRange(0, size-1).Draw(t, "first"), rapid.IntRange(-5, 5).Draw(t, "stride")
		for range rapid.IntRange(1, 100).Draw(t, "count") {
			if rank < 0 || rank >= size || used[rank] {
				break
			}
			used[rank] = true
			node, _ := m.Node(uint32(rank))
			ranks, nodes = append(ranks, uint32(rank)), append(nodes, node)
			rank += stride
		}
	}
	return NewLayout(group(ranks...), "job", m), ranks, nodes
}

// group returns the processes of ranks.
func group(ranks ...uint32) framework.Procs {
	var b framework.ProcsBuilder
	for _, r := range ranks {
		b.Add(framework.Proc{Namespace: "job", Rank: r})
	}
	return b.Procs()
}

// The layout has the ranks and nodes of the list. At each level each first member of the level below is in one block.
func TestLayout_Runs_AreTheList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, ranks, nodes := drawLayout(t)
		if l.Size() != len(ranks) {
			t.Fatalf("%d members, want %d", l.Size(), len(ranks))
		}
		var firsts []int // Of the blocks of a level, ascending.
		for i, node := range nodes {
			if got := l.Proc(i); got != (framework.Proc{Namespace: "job", Rank: ranks[i]}) {
				t.Fatalf("member %d is %v, want %d", i, got, ranks[i])
			}
			if slices.Index(nodes, node) == i {
				firsts = append(firsts, i)
			}
		}
		if l.Nodes() != len(firsts) {
			t.Fatalf("%d nodes, want %d", l.Nodes(), len(firsts))
		}
		for i, node := range nodes {
			level := l.Levels(i)[0]
			if level.Members[level.SelfIndex] != i || nodes[level.Members[0]] != node || len(level.Members) != count(nodes, node) || !slices.IsSorted(level.Members) {
				t.Fatalf("level 0 of member %d is %+v", i, level)
			}
		}
		for number := 1; ; number++ {
			var next []int
			for i, first := range firsts {
				levels := l.Levels(first)
				block := firsts[i/BlockSize*BlockSize : min(len(firsts), i/BlockSize*BlockSize+BlockSize)]
				if level := levels[number]; level.Number != number || !slices.Equal(level.Members, block) || level.SelfIndex != i%BlockSize {
					t.Fatalf("level %d of member %d is %+v, want %d", number, first, level, block)
				}
				if i%BlockSize == 0 {
					next = append(next, first)
				} else if len(levels) != number+1 {
					t.Fatalf("member %d has %d levels, want %d", first, len(levels), number+1)
				}
			}
			if firsts = next; len(firsts) == 1 {
				return
			}
		}
	})
}

func count(list []uint32, x uint32) int {
	n := 0
	for _, y := range list {
		if x == y {
			n++
		}
	}
	return n
}

func TestNewLayout_MemberNotInMap_IsNil(t *testing.T) {
	m := bootstrap.NodeMap{{First: 4, Count: 4, Node: 0}}
	for _, ranks := range [][]uint32{{3}, {4, 5, 6, 7, 8}, {6, 4, 2}, {9}} {
		if l := NewLayout(group(ranks...), "job", m); l != nil {
			t.Errorf("%d: %+v", ranks, l)
		}
	}
	if l := NewLayout(group(4, 5), "another", m); l != nil {
		t.Errorf("another namespace: %+v", l)
	}
}

func TestLayoutKey_AnyDifference_Differs(t *testing.T) {
	all := group(0, 1, 2, 3, 4, 5, 6, 7)
	m := bootstrap.NodeMap{{First: 0, Count: 4, Node: 0}, {First: 4, Count: 4, Node: 1}}
	keys := []uint64{
		NewLayout(all, "job", m).Key("tag", 0),
		NewLayout(all, "job", m).Key("tag", 1),
		NewLayout(all, "job", m).Key("other", 0),
		NewLayout(group(0, 2, 4, 6), "job", m).Key("tag", 0),
		NewLayout(all, "job", bootstrap.NodeMap{{First: 0, Count: 3, Node: 0}, {First: 3, Count: 5, Node: 1}}).Key("tag", 0),
		NewLayout(all, "job", bootstrap.NodeMap{{First: 0, Count: 4, Node: 2}, {First: 4, Count: 4, Node: 1}}).Key("tag", 0),
	}
	slices.Sort(keys)
	if len(slices.Compact(keys)) != 6 {
		t.Errorf("keys %x", keys)
	}
}

// Each member but 0 is child of its parent, and 0 reaches all in depth rounds.
func TestTree_AnySize_HasEachMemberOnce(t *testing.T) {
	for n := 1; n <= 130; n++ {
		reached := map[int]int{0: 0}
		for i := range n {
			for k, child := range children(i, n) {
				if parent(child) != i || child != i|1<<k {
					t.Fatalf("child %d of %d in %d has parent %d", child, i, n, parent(child))
				}
				reached[child] = bits.OnesCount(uint(child))
			}
		}
		if len(reached) != n {
			t.Fatalf("%d of %d members", len(reached), n)
		}
		for _, rounds := range reached {
			if rounds > depth(n) {
				t.Fatalf("%d rounds with %d members, depth %d", rounds, n, depth(n))
			}
		}
	}
}

// Constructs have 7/8 of the timeout and then half of the rest each, and a parent waits longer than its child, in each phase.
func TestSchedule_Levels_AreLaterTowardsTheCoordinator(t *testing.T) {
	var m bootstrap.NodeMap
	var ranks []uint32
	for i := range uint32(5000) {
		m, ranks = append(m, bootstrap.NodeRun{First: i, Count: 1, Node: i}), append(ranks, i)
	}
	l := NewLayout(group(ranks...), "job", m)
	s := NewSchedule(l, 64*time.Second)
	for level, want := range []time.Duration{56 * time.Second, 60 * time.Second, 62 * time.Second, 63 * time.Second} {
		if got := s.Construct(level); got != want {
			t.Errorf("level %d at %v, want %v", level, got, want)
		}
	}
	at := []time.Duration{64*time.Second - 1}
	path := [][2]int{{0, 0}} // Levels and children from a member of a node to the coordinator.
	for level, d := range l.depths() {
		for child := range d {
			path = append(path, [2]int{level + 1, child})
		}
	}
	for p := gathering; p < phases; p++ {
		steps := slices.Clone(path)
		if p == distributing || p == committing {
			slices.Reverse(steps)
		}
		for _, step := range steps {
			at = append(at, s.message(p, step[0], step[1]))
		}
	}
	for i := range at[1:] {
		if at[i+1] <= at[i] {
			t.Fatalf("step %d at %v, after %v", i, at[i+1], at[i])
		}
	}
	if last := at[len(at)-1]; last > 128*time.Second {
		t.Errorf("the last at %v", last)
	}
}
