package agreement

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/cid"
	"pgregory.net/rapid"
)

// network is a run of several instances over a network that loses, duplicates and reorders
// messages.
type network struct {
	t        *rapid.T
	machines []*Machine
	pending  []sent
	dead     []bool
	closed   []bool
	// By rank, the number of calls.
	calls    []int
	outcomes []map[uint64]Outcome
}

func newNetwork(t *rapid.T) *network {
	n := rapid.IntRange(1, 6).Draw(t, "members")
	w := &network{t: t, dead: make([]bool, n), closed: make([]bool, n), calls: make([]int, n)}
	for r := range n {
		w.machines = append(w.machines, New(r, n))
		w.outcomes = append(w.outcomes, map[uint64]Outcome{})
	}
	return w
}

// collect moves the queued messages of a rank into the network. Each passes its encoding.
func (w *network) collect(rank int) {
	m := w.machines[rank]
	for _, e := range m.Take() {
		msg, err := Decode(Encode(e.Message), len(w.machines))
		if err != nil {
			w.t.Fatalf("rank %d sends %+v: %v", rank, e.Message, err)
		}
		w.pending = append(w.pending, sent{rank, e.ToRank, msg})
	}
	if o, ok := m.Result(); ok {
		w.outcomes[rank][m.Instance()-1] = o
	}
}

// deliver takes a pending message out of the network, and repeats or loses it at random.
func (w *network) deliver(index, fate int) {
	e := w.pending[index]
	if fate != duplicated {
		w.pending = slices.Delete(w.pending, index, index+1)
	}
	if fate != lost && !w.dead[e.to] {
		w.machines[e.to].Receive(e.from, e.message)
		w.collect(e.to)
	}
}

const (
	delivered = iota
	duplicated
	lost
)

// live returns the ranks that are neither dead nor closed.
func (w *network) live() []int {
	var ranks []int
	for r := range w.machines {
		if !w.dead[r] && !w.closed[r] {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// start calls the operation of the current instance, which is the same in all members.
func (w *network) start(r int) {
	m := w.machines[r]
	op := Agree
	if m.Instance()%2 == 1 {
		op = Shrink
	}
	err := m.Start(Call{Operation: op, Flags: ^uint64(1 << r), ID: cid.Extended{Base: uint64(100*r) + m.Instance()}}, nil)
	if err != nil {
		w.t.Fatalf("rank %d: %v", r, err)
	}
	w.calls[r]++
	w.collect(r)
}

func (w *network) step(instances uint64) {
	rank := rapid.SampledFrom(w.live()).Draw(w.t, "rank")
	m := w.machines[rank]
	switch rapid.IntRange(0, 20).Draw(w.t, "step") {
	case 0:
		if len(w.live()) > 1 {
			w.dead[rank] = true
		}
	case 1:
		if len(w.live()) > 1 && m.Instance() > 0 {
			m.Close()
			w.closed[rank] = true
		}
	case 2:
		m.Exclude()
	case 3:
		m.Tick()
	case 4, 5, 6:
		if m.ownCall == nil && m.Instance() < instances {
			w.start(rank)
		}
	case 7, 8:
		for r, isDead := range w.dead {
			if isDead {
				m.Failed(r)
				break
			}
		}
	default:
		if len(w.pending) > 0 {
			w.deliver(rapid.IntRange(0, len(w.pending)-1).Draw(w.t, "message"), rapid.IntRange(delivered, lost).Draw(w.t, "fate"))
		}
	}
	w.collect(rank)
}

// finish makes all calls, reports all failures and delivers all messages, until the live
// members have decided all instances.
func (w *network) finish(instances uint64) {
	for range 200 {
		isDone := true
		for _, r := range w.live() {
			m := w.machines[r]
			if m.Instance() >= instances {
				continue
			}
			isDone = false
			for dead, isDead := range w.dead {
				if isDead {
					m.Failed(dead)
				}
			}
			w.collect(r)
			if m.ownCall == nil && m.Instance() < instances {
				w.start(r)
			}
			m.Tick()
			w.collect(r)
		}
		if isDone {
			return
		}
		for len(w.pending) > 0 {
			w.deliver(0, delivered)
		}
	}
	w.t.Fatalf("live ranks %d have not decided %d instances", w.live(), instances)
}

func TestAgreement_LossyNetwork_OneOutcomePerInstance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const instances = 4
		w := newNetwork(t)
		for range rapid.IntRange(0, 300).Draw(t, "steps") {
			w.step(instances)
		}
		w.finish(instances)
		for i := range uint64(instances) {
			w.checkInstance(i)
		}
	})
}

// checkInstance requires one outcome, without failures that did not happen, and the exclusion
// of ranks that no longer take part.
func (w *network) checkInstance(i uint64) {
	first := ""
	for r, outcomes := range w.outcomes {
		o, ok := outcomes[i]
		if !ok {
			continue
		}
		switch s := text(&o); {
		case first == "":
			first = s
		case s != first:
			w.t.Fatalf("instance %d: rank %d: %s; another rank: %s", i, r, s, first)
		}
		for _, f := range o.FailedRanks {
			if !w.dead[f] {
				w.t.Fatalf("instance %d: live rank %d is among the failed ranks %d", i, f, o.FailedRanks)
			}
		}
		if len(o.MixedRanks) != 0 {
			w.t.Fatalf("instance %d: mixed calls of %d", i, o.MixedRanks)
		}
	}
	if first == "" && len(w.live()) > 0 {
		w.t.Fatal(fmt.Sprintf("instance %d: no outcome", i))
	}
}
