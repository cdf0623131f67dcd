package choose

import (
	"fmt"
	"testing"
)

// batches is a machine on which each process packs a few messages and then unpacks a few: of
// batch messages the last one takes what all of them cost, and the others nothing to speak of.
type batches struct {
	*machine
	batch, n int
	owed     float64
}

func (b *batches) took(w Way, bytes int64) int64 {
	b.owed += float64(b.machine.took(w, bytes))
	if b.n++; b.n%b.batch > 0 {
		return 10
	}
	t := int64(b.owed)
	b.owed = 0
	return t
}

// TestGroupsFindTheBestWayWhereOneMessageSaysNothing: the messages of a window pass those of
// another one, end in batches, and some of them were accepted before the way changed.
func TestGroupsFindTheBestWayWhereOneMessageSaysNothing(t *testing.T) {
	for _, x := range []struct{ group, batch, ahead int }{{32, 1, 32}, {32, 4, 32}, {32, 7, 0}, {32, 16, 32}, {16, 1, 16}, {16, 4, 16}, {16, 7, 16}, {8, 1, 8}, {8, 3, 8}} {
		var losses []float64
		for seed := range uint64(machines() / 20) {
			m := &batches{machine: newMachine(seed), batch: x.batch}
			m.spike = 0
			m.ways = Framed | Of(Read)
			for w := range m.drift {
				m.drift[w] = 0
			}
			g := NewGrouped(seed, x.group, Frames)
			var under []Way // way
			var took, least float64
			for i := range 6400 {
				w, _ := g.Next(m.ways)
				if i >= 3200 {
					took += m.cost[w]
					least += m.best()
				}
				if under = append(under, w); len(under) > x.ahead {
					g.Took(under[0], simulated, m.took(under[0], simulated), false)
					under = under[1:]
				}
			}
			losses = append(losses, took/least-1)
		}
		if mean := summary(t, fmt.Sprintf("%+v: messages 3201 to 6400", x), losses); mean > 0.03 {
			t.Errorf("loses %.1f %%", 100*mean)
		}
	}
}

// TestGroupIsOverWhereItsWayIsNotPossibleAnyMore: no message goes a way that it can't.
func TestGroupIsOverWhereItsWayIsNotPossibleAnyMore(t *testing.T) {
	g := NewGrouped(1, 16, Frames)
	for i := range 1000 {
		possible := Of(Frames, Read)
		if i%7 > 3 {
			possible = Of(Wide)
		}
		w, _ := g.Next(possible)
		if !possible.Has(w) {
			t.Fatalf("message %d goes by %v", i, w)
		}
		g.Took(w, simulated, simulated/10, true)
	}
}

// TestGroupThatWasFoundCompleteSaysNothing: all its messages had come when one was looked for, and
// in no time.
func TestGroupThatWasFoundCompleteSaysNothing(t *testing.T) {
	g := NewGrouped(1, 8, Frames)
	by := map[Way]int{}
	for i := range 4000 {
		w, _ := g.Next(Of(Frames, Wide))
		ns := int64(simulated / 20)
		if w == Frames {
			if ns = simulated / 10; i%80 < 12 {
				ns = 0
			}
		}
		g.Took(w, simulated, ns, true)
		by[w]++
	}
	if by[Wide] < 3000 {
		t.Errorf("by which ways 4000 messages went: %v", by)
	}
}
