package choose

import "testing"

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
// another one, and end in batches.
func TestGroupsFindTheBestWayWhereOneMessageSaysNothing(t *testing.T) {
	for _, batch := range []int{1, 4, 7, 16} {
		var losses []float64
		for seed := range uint64(machines() / 10) {
			m := &batches{machine: newMachine(seed), batch: batch}
			m.spike = 0
			m.ways = Framed | Of(Read)
			for w := range m.drift {
				m.drift[w] = 0
			}
			g := NewGrouped(seed, 32, Frames)
			var took, least float64
			for i := range 6400 {
				w, _ := g.Next(m.ways)
				if i >= 3200 {
					took += m.cost[w]
					least += m.best()
				}
				g.Took(w, simulated, m.took(w, simulated), false)
			}
			losses = append(losses, took/least-1)
		}
		if mean := summary(t, "messages 3201 to 6400", losses); mean > 0.03 {
			t.Errorf("batches of %d: loses %.1f %%", batch, 100*mean)
		}
	}
}
