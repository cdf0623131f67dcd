package choose

// Grouped chooses for groups of messages: all messages of a group go one way, and what they took
// together is one measurement, and one message for the Chooser. It is for messages of which
// one by itself says little.
type Grouped struct {
	Chooser
	Group int // messages of a group; up to 1: each message is chosen for by itself

	way   Way // of the group
	left  int // messages of it that are to come
	trial bool

	of     Way // whose messages are summed up
	silent int // how many more say nothing, as they follow others that went another way
	need   int // how many more there are in the sum
	bytes  int64
	ns     int64
}

// changing is how many messages of a group that follows one of another way say nothing.
const changing = 2

// NewGrouped returns a chooser for groups of so many messages.
func NewGrouped(seed uint64, group int, guess Way) Grouped {
	g := Grouped{Chooser: New(seed, 1, guess), Group: group, of: Ways}
	g.steady = true
	return g
}

// Next is Chooser.Next.
func (g *Grouped) Next(possible Set) (w Way, trial bool) {
	if g.Group <= 1 {
		return g.Chooser.Next(possible)
	}
	if g.left--; g.left < 0 || !possible.Has(g.way) {
		g.left = g.Group - 1
		g.way, g.trial = g.Chooser.Next(possible)
	}
	return g.way, g.trial
}

// Took is Chooser.Took.
func (g *Grouped) Took(w Way, bytes, ns int64, clean bool) {
	if g.Group <= 1 {
		g.Chooser.Took(w, bytes, ns, clean)
		return
	}
	if w != g.of {
		g.of, g.silent, g.need, g.bytes, g.ns = w, changing, g.Group-changing, 0, 0
	}
	if g.silent > 0 {
		g.silent--
		return
	}
	g.bytes += bytes
	g.ns += max(ns, 0)
	if g.need--; g.need <= 0 {
		g.Chooser.Took(w, g.bytes, g.ns, true)
		g.need, g.bytes, g.ns = g.Group, 0, 0
	}
}

// Learnt is Chooser.Learnt.
func (g *Grouped) Learnt() []Learnt {
	all := g.Chooser.Learnt()
	for i := range all {
		all[i].Messages *= uint64(max(g.Group, 1))
	}
	return all
}
