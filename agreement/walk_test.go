package agreement

import (
	"encoding/binary"
	"flag"
	"fmt"
	"hash/maphash"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/cid"
)

// memberPhase is a member's position in a walk.
type memberPhase uint8

const (
	idle     memberPhase = iota // Has not called.
	reducing                    // In the allreduce of the common case.
	reduced                     // In the barrier, with the value.
	started                     // In the protocol.
	decided
)

// walk visits every state that n members can reach with lost, duplicated and reordered messages and failures of members. Sent messages stay deliverable forever, so that a
// duplicate is a second delivery, and a loss is a delivery that no path takes.
type walk struct {
	t         *testing.T
	n, deaths int
	// Members begin with the common case.
	isCommon bool
	isFull   bool // Only with -full.
	// Members that are reported failed continue.
	isFalse   bool
	messages  map[string]int
	envelopes []sent // By number.
	received  map[*Message]int
	// The number of paths from each state to an end.
	visited  map[[2]uint64]float64
	seeds    [2]maphash.Seed
	paths    float64
	outcomes map[string]bool
}

type sent struct {
	from, to int
	message  Message
}

// world is one state.
type world struct {
	machines []*Machine
	phases   []memberPhase
	// Ever, also if dead now.
	hasReduced []bool
	hasEntered []bool
	dead       []bool
	outcomes   []string
	// Bit set of message numbers.
	inNetwork    []uint64
	deathsToCome int
}

func (w *world) clone() *world {
	c := *w
	c.machines = make([]*Machine, len(w.machines))
	for i, m := range w.machines {
		k := *m
		k.memberStates, k.contributions, k.hasAcked = slices.Clone(m.memberStates), slices.Clone(m.contributions), slices.Clone(m.hasAcked)
		c.machines[i] = &k // Members of a walk send no message of a second instance.
	}
	c.phases, c.dead = slices.Clone(w.phases), slices.Clone(w.dead)
	c.hasReduced, c.hasEntered = slices.Clone(w.hasReduced), slices.Clone(w.hasEntered)
	c.outcomes, c.inNetwork = slices.Clone(w.outcomes), slices.Clone(w.inNetwork)
	return &c
}

func (k *walk) key(w *world) [2]uint64 {
	var b []byte
	for i, m := range w.machines {
		if w.dead[i] && !k.isFalse { // Its outcome and its effects on others remain.
			b = append(b, 1, bit(w.hasReduced[i]), bit(w.hasEntered[i]))
			b = append(b, w.outcomes[i]...)
			continue
		}
		b = append(b, byte(w.phases[i]), bit(w.dead[i]), bit(w.hasReduced[i]), bit(w.hasEntered[i]), byte(m.instance), byte(m.highestBallot), byte(m.heldBallot), bit(m.isAsking), bit(m.isProposed))
		for r := range m.memberStates {
			b = append(b, byte(m.memberStates[r]), bit(m.hasAcked[r]))
			if c := m.contributions[r]; c != nil && m.memberStates[r] == alive {
				n, ok := k.received[c]
				if !ok {
					n = k.number(sent{r, i, *c})
					k.received[c] = n
				}
				b = binary.AppendUvarint(b, uint64(n)+1)
			} else {
				b = append(b, 0)
			}
		}
		b = appendOutcome(b, m.heldOutcome)
		b = append(b, w.outcomes[i]...)
		b = append(b, 0)
	}
	k.prune(w)
	for _, word := range w.inNetwork {
		b = binary.AppendUvarint(b, word)
	}
	b = append(b, byte(w.deathsToCome))
	return [2]uint64{maphash.Bytes(k.seeds[0], b), maphash.Bytes(k.seeds[1], b)}
}

// prune removes the messages that have no effect from now on.
func (k *walk) prune(w *world) {
	for index, word := range w.inNetwork {
		for b := range 64 {
			if word&(1<<b) != 0 && !k.canMatter(w, k.envelopes[64*index+b]) {
				w.inNetwork[index] &^= 1 << b
			}
		}
	}
	for len(w.inNetwork) > 0 && w.inNetwork[len(w.inNetwork)-1] == 0 {
		w.inNetwork = w.inNetwork[:len(w.inNetwork)-1]
	}
}

// canMatter reports whether the delivery of e can have an effect, now or later.
func (k *walk) canMatter(w *world, e sent) bool {
	to := w.machines[e.to]
	switch {
	case w.dead[e.to] && !k.isFalse, to.memberStates[e.from] != alive:
		return false
	case w.phases[e.to] != decided:
		return true
	case e.message.Kind == Decided:
		return false
	}
	return (!w.dead[e.from] || k.isFalse) && w.phases[e.from] != decided // The receiver answers Decided.
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func text(o *Outcome) string {
	if o == nil {
		return ""
	}
	return fmt.Sprintf("%v %x failed %d acked %d excluded %d id %d mixed %d wire-up %t", o.Operation, o.Flags, o.FailedRanks, o.AckedRanks, o.ExcludedRanks, o.ID, o.MixedRanks, o.WireUp)
}

// appendOutcome appends the fields of o, which text prints, in less time.
func appendOutcome(b []byte, o *Outcome) []byte {
	if o == nil {
		return append(b, 0)
	}
	b = append(b, 1, byte(o.Operation), bit(o.WireUp))
	b = binary.AppendUvarint(b, o.Flags)
	b = binary.AppendUvarint(binary.AppendUvarint(b, o.ID.Base), o.ID.Sub)
	for _, ranks := range [][]int{o.FailedRanks, o.AckedRanks, o.ExcludedRanks, o.MixedRanks} {
		b = append(b, byte(len(ranks)))
		for _, r := range ranks {
			b = append(b, byte(r))
		}
	}
	return b
}

// number returns the number of a message.
func (k *walk) number(s sent) int {
	name := fmt.Sprint(s.from, s.to, string(Encode(s.message)))
	n, ok := k.messages[name]
	if !ok {
		n = len(k.envelopes)
		k.messages[name] = n
		k.envelopes = append(k.envelopes, s)
	}
	return n
}

// settle moves the queued messages of member i into the network, and takes its outcome.
func (k *walk) settle(w *world, i int) {
	for _, e := range w.machines[i].Take() {
		n := k.number(sent{i, e.ToRank, e.Message})
		for len(w.inNetwork) <= n/64 {
			w.inNetwork = append(w.inNetwork, 0)
		}
		w.inNetwork[n/64] |= 1 << (n % 64)
	}
	if o, ok := w.machines[i].Result(); ok {
		w.phases[i] = decided
		if !w.dead[i] {
			w.outcomes[i] = text(&o)
		}
	}
}

func (k *walk) call(i int) Call {
	return Call{Operation: Agree, Flags: ^uint64(0) &^ (1 << i), ID: cid.Extended{Base: uint64(100 + i)}}
}

func (k *walk) andOfAll() uint64 { return ^uint64(0) << k.n }

// steps calls visit with each state that one step other than a death reaches.
func (k *walk) steps(w *world, visit func(*world)) {
	for i := range k.n {
		if w.dead[i] && !k.isFalse {
			continue
		}
		k.ownSteps(w, i, visit)
		for j := range k.n {
			if i != j && w.dead[j] && w.machines[i].memberStates[j] == alive {
				k.step(w, i, visit, func(_ *world, m *Machine) { m.Failed(j) })
			}
		}
	}
	for index, word := range w.inNetwork {
		for b := range 64 {
			if word&(1<<b) == 0 {
				continue
			}
			if e := k.envelopes[64*index+b]; !w.dead[e.to] || k.isFalse {
				k.step(w, e.to, visit, func(_ *world, m *Machine) { m.Receive(e.from, e.message) })
			}
		}
	}
}

// ownSteps are those of member i alone.
func (k *walk) ownSteps(w *world, i int, visit func(*world)) {
	m := w.machines[i]
	start := func(value *uint64) {
		k.step(w, i, visit, func(w *world, m *Machine) {
			w.phases[i] = started
			if err := m.Start(k.call(i), value); err != nil {
				k.t.Fatal(err)
			}
		})
	}
	switch value := k.andOfAll(); w.phases[i] {
	case idle:
		if k.isCommon && !m.Requested() {
			k.step(w, i, visit, func(w *world, _ *Machine) { w.phases[i], w.hasEntered[i] = reducing, true })
		} else {
			start(nil)
		}
	case reducing:
		if !slices.Contains(w.hasEntered, false) {
			k.step(w, i, visit, func(w *world, _ *Machine) { w.phases[i], w.hasReduced[i] = reduced, true })
		}
		start(nil) // Upon a message or a death, or at the end of a context.
	case reduced:
		if !slices.Contains(w.hasReduced, false) {
			k.step(w, i, visit, func(w *world, m *Machine) {
				m.Complete()
				w.phases[i] = decided
				if !w.dead[i] {
					w.outcomes[i] = text(&Outcome{Operation: Agree, Flags: value})
				}
			})
		}
		start(&value)
	}
}

// step applies a step of member i to a copy of w.
func (k *walk) step(w *world, i int, visit func(*world), apply func(*world, *Machine)) {
	c := w.clone()
	apply(c, c.machines[i])
	k.settle(c, i)
	visit(c)
}

// run visits all states from the initial one.
func (k *walk) run() {
	k.messages, k.received = map[string]int{}, map[*Message]int{}
	k.visited, k.outcomes = map[[2]uint64]float64{}, map[string]bool{}
	k.seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	first := &world{
		phases: make([]memberPhase, k.n), dead: make([]bool, k.n), hasReduced: make([]bool, k.n), hasEntered: make([]bool, k.n),
		outcomes: make([]string, k.n), deathsToCome: k.deaths,
	}
	for i := range k.n {
		first.machines = append(first.machines, New(i, k.n))
	}
	k.paths = k.visit(first, k.key(first))
}

// visit visits w and all states after it, and returns the number of paths from w to an end. own is the key of w.
func (k *walk) visit(w *world, own [2]uint64) float64 {
	if paths, ok := k.visited[own]; ok {
		return paths
	}
	k.check(w)
	paths := 0.0
	next := func(c *world) {
		if key := k.key(c); !k.t.Failed() && key != own {
			paths += k.visit(c, key)
		}
	}
	k.steps(w, next)
	if paths == 0 {
		k.checkEnd(w)
		paths = 1
	}
	for i := range k.n {
		if w.deathsToCome > 0 && !w.dead[i] {
			c := w.clone()
			c.dead[i] = true
			c.deathsToCome--
			next(c)
		}
	}
	k.visited[own] = paths
	return paths
}

// check requires one outcome of all members that have decided, also of those that failed later.
func (k *walk) check(w *world) {
	outcome := ""
	for i, o := range w.outcomes {
		if o == "" {
			continue
		}
		if outcome != "" && outcome != o {
			k.t.Errorf("rank %d: %s; another rank: %s", i, o, outcome)
		}
		outcome = o
	}
	k.outcomes[outcome] = true
}

// checkEnd requires that all live members have decided when no step is left.
func (k *walk) checkEnd(w *world) {
	for i, p := range w.phases {
		if !w.dead[i] && p != decided {
			k.t.Errorf("rank %d has not decided; phases %d, dead %t", i, w.phases, w.dead)
		}
	}
}

var full = flag.Bool("full", false, "walk through the common case of four members with two deaths, and through false reports among four, 10 minutes")

func TestAgreement_Exhaustive_OneOutcome(t *testing.T) {
	for _, k := range []walk{
		{n: 2, deaths: 1, isCommon: true},
		{n: 3, deaths: 2}, {n: 3, deaths: 2, isCommon: true}, {n: 3, deaths: 2, isFalse: true},
		{n: 4, deaths: 1}, {n: 4, deaths: 2},
		{n: 4, deaths: 2, isFull: true, isCommon: true}, {n: 4, deaths: 1, isFull: true, isFalse: true},
	} {
		name := fmt.Sprintf("%d members, %d deaths", k.n, k.deaths)
		if k.isCommon {
			name += ", common case"
		}
		if k.isFalse {
			name += ", false reports"
		}
		t.Run(name, func(t *testing.T) {
			if k.isFull && !*full {
				t.Skip("needs -full")
			}
			k.t = t
			k.run()
			t.Logf("%d states, %.3g interleavings of %d messages, each with one outcome in all members; %d outcomes in total",
				len(k.visited), k.paths, len(k.envelopes), len(k.outcomes)-1)
		})
	}
}
