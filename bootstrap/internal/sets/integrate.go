package sets

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// changeOf finds a change of the caller by the name of its delta. The change may have ended, because
// members may be late.
func (t *Table[W]) changeOf(rank uint32, name string) (*change[W], *wire.FailureBody) {
	p := t.procs[rank]
	if p == nil {
		return nil, failf(wire.CodeRank, "rank %d has ended", rank)
	}
	for _, c := range []*change[W]{p.change, p.lastChange} {
		if c != nil && t.namesDelta(name, c, rank) {
			return c, nil
		}
	}
	own := p.change
	if strings.EqualFold(name, bootstrap.PsetSelf) {
		return nil, failf(wire.CodePset, "%q: this process is in no delta%s", name, ownChangeHint(own, rank))
	}
	s, f := t.find(rank, name)
	if f != nil {
		if d, ok := t.tombstones.byKey[bootstrap.PsetKey(name)]; ok && d.failure != nil {
			return nil, d.failure
		}
		f.Text += ownChangeHint(own, rank)
		return nil, f
	}
	return nil, failf(wire.CodePset, "%q is not the delta of a change of this process%s", s.name, ownChangeHint(own, rank))
}

// namesDelta reports whether a name is that of a delta of a process's change. mpi://SELF and
// mpi://WORLD mean the unfinished change of a process that has one. The name of a deleted delta
// remains valid for the process.
func (t *Table[W]) namesDelta(name string, c *change[W], rank uint32) bool {
	p := t.procs[rank]
	isLatest := c == p.change || p.change == nil
	switch {
	case strings.EqualFold(name, bootstrap.PsetSelf):
		return isLatest && (c.joins(rank) || c.leaves(rank))
	case strings.EqualFold(name, bootstrap.PsetWorld):
		return isLatest && c.isDelta(p.world)
	}
	key := bootstrap.PsetKey(name)
	if s := t.sets[key]; s != nil {
		return t.isVisible(rank, s) && c.isDelta(s)
	}
	return slices.ContainsFunc([]*set[W]{c.leaving, c.joining}, func(s *set[W]) bool {
		return s != nil && bootstrap.PsetKey(s.name) == key
	})
}

// ownChangeHint names the delta of a process's own change, if it sees one.
func ownChangeHint[W join.Waiter](c *change[W], rank uint32) string {
	if c == nil || c.state == stateStarting && !c.joins(rank) {
		return "; it has no unfinished change"
	}
	return fmt.Sprintf("; its change is %q", c.delta(rank))
}

// Integrate enters a process into the integration of its change.
func (t *Table[W]) Integrate(w W, rank uint32, b wire.IntegrateBody) {
	c, f := t.changeOf(rank, b.Delta)
	switch {
	case f != nil:
		join.Fail(w, *f)
		return
	case c.state == stateUndone:
		join.Fail(w, c.failure)
		return
	case c.state >= stateIntegrated:
		reply(w, c.outcome(rank))
		return
	}
	c.integrateCalls[rank] = append(c.integrateCalls[rank], integrateCall[W]{w, b.Provide})
	w.SetWithdraw(func(expired bool) wire.FailureBody { return t.withdrawCall(c, w, rank, expired) })
	if len(c.integrateCalls) == c.groupSize && c.state == stateOpen {
		t.complete(c)
	}
}

func (c *change[W]) outcome(rank uint32) wire.IntegratedBody {
	return wire.IntegratedBody{Pset: c.resultName, Terminate: c.leaves(rank)}
}

// complete ends an integration that all members have entered.
func (t *Table[W]) complete(c *change[W]) {
	entered := c.integrateCalls
	c.integrateCalls = map[uint32][]integrateCall[W]{}
	ranks := slices.Sorted(maps.Keys(entered))
	var provided []string
	for _, r := range ranks {
		for _, e := range entered[r] {
			if e.provide != "" {
				c.resultName = e.provide
				provided = append(provided, fmt.Sprintf("rank %d provides %q", r, e.provide))
			}
		}
	}
	if len(provided) > 1 {
		f := failf(wire.CodePset, "%s: only one call may provide a name", strings.Join(provided[:2], ", and "))
		c.resultName = ""
		forEachCall(ranks, entered, func(_ uint32, w W) { join.Fail(w, *f) })
		return
	}
	if c.resultName == "" && c.main != nil {
		c.resultName = c.main.name
	}
	t.setIntegrated(c)
	forEachCall(ranks, entered, func(r uint32, w W) {
		w.ClearWithdraw()
		reply(w, c.outcome(r))
	})
	if c.requester == user || t.procs[uint32(c.requester)] == nil {
		t.finish(c)
	}
}

// forEachCall calls f for the calls of all members.
func forEachCall[W join.Waiter](ranks []uint32, entered map[uint32][]integrateCall[W], f func(rank uint32, w W)) {
	for _, r := range ranks {
		for _, e := range entered[r] {
			f(r, e.waiter)
		}
	}
}

// setIntegrated makes the outcome of a change final.
func (t *Table[W]) setIntegrated(c *change[W]) {
	c.state = stateIntegrated
	t.reportChange(ChangeIntegrated, c, c.resultName)
	if c.joining != nil {
		for _, r := range c.joining.ranks {
			t.excusedRanks.remove(r)
		}
	}
	if c.leaving == nil {
		return
	}
	for _, r := range c.leaving.ranks {
		if t.isPresent(r) {
			t.leaves(r)
			t.excusedRanks.add(r)
		}
	}
	t.order(AwaitExit, c.leaving.ranks, "")
}

// withdrawCall removes a call from an integration. A deadline undoes the change.
func (t *Table[W]) withdrawCall(c *change[W], w W, rank uint32, expired bool) wire.FailureBody {
	missing := t.absent(c)
	calls := slices.DeleteFunc(c.integrateCalls[rank], func(e integrateCall[W]) bool { return e.waiter == w })
	if c.integrateCalls[rank] = calls; len(calls) == 0 {
		delete(c.integrateCalls, rank)
	}
	if !expired {
		return wire.FailureBody{Code: wire.CodeWithdrawn, Missing: missing}
	}
	f := wire.FailureBody{Code: wire.CodeMissing, Missing: missing}
	t.undo(c, f)
	f.Text = undoneText
	return f
}

// absent returns the members that have not entered.
func (t *Table[W]) absent(c *change[W]) []uint32 {
	var absent []uint32
	for _, s := range []*set[W]{c.associated, c.joining} {
		if s == nil {
			continue
		}
		for _, r := range s.ranks {
			if p := t.procs[r]; p != nil && p.change == c && len(c.integrateCalls[r]) == 0 {
				absent = append(absent, r)
			}
		}
	}
	return absent
}

// Finish ends an integrated change, for a member or the requester. It succeeds for a change
// that is finished already.
func (t *Table[W]) Finish(w W, rank uint32, delta string) {
	c, f := t.changeOf(rank, delta)
	if s, _ := t.find(rank, delta); f != nil && s != nil {
		switch {
		case s.isFinished:
			reply(w, wire.Empty{})
			return
		case s.change != nil && s != s.change.associated && s.change.requester == int64(rank):
			c, f = s.change, nil
		}
	}
	switch {
	case f != nil:
		join.Fail(w, *f)
		return
	case c.state == stateUndone:
		join.Fail(w, c.failure)
		return
	case c.state < stateIntegrated:
		join.Fail(w, *failf(wire.CodePending, "the change is not integrated: ranks %v have not called Integrate", firstRanks(t.absent(c))))
		return
	case c.state == stateIntegrated:
		t.finish(c)
	}
	reply(w, wire.Empty{})
}

// firstRanks returns the first of some ranks, for messages.
func firstRanks(ranks []uint32) []uint32 { return ranks[:min(len(ranks), 16)] }

// finish ends an integrated change.
func (t *Table[W]) finish(c *change[W]) {
	c.state = stateFinished
	t.reportChange(ChangeFinished, c, "")
	t.release(c)
	for _, s := range []*set[W]{c.leaving, c.joining} {
		if s != nil {
			s.isFinished = true
		}
	}
	if c.leaving != nil {
		for _, r := range c.leaving.ranks {
			t.excusedRanks.add(r)
			if t.procs[r] == nil && t.options.Removed != nil {
				t.options.Removed(r)
			}
		}
	}
	t.recordSuccessor(c)
	t.answer(c)
	t.wakeGroup(c) // The change hid failures of members.
	c.trim()
}

// recordSuccessor records the set that a finished change has made of its associated set, for a user, and
// of those that earlier changes made into that. A change without a main set makes none.
func (t *Table[W]) recordSuccessor(c *change[W]) {
	made := t.sets[bootstrap.PsetKey(c.resultName)]
	if made == nil || made.hiddenBy != nil {
		made = c.main
	}
	if made == nil {
		return
	}
	next := successorSet{made.name, made.serial}
	follow := func(s *set[W]) {
		if s == c.associated || s.successor.serial == c.associated.serial && s.successor.serial != 0 {
			s.successor = next
		}
	}
	follow(t.world)
	for _, s := range t.setsByAge {
		follow(s)
	}
}
