package sets

import (
	"slices"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// changeState is the state of a change; see the package comment. Later states are greater.
type changeState uint8

const (
	stateStarting changeState = iota
	stateOpen
	stateIntegrated
	stateFinished
	stateUndone
)

var changeStateNames = [...]string{"stateStarting", "stateOpen", "stateIntegrated", "stateFinished", "stateUndone"}

func (s changeState) String() string { return changeStateNames[s] }

// A change is one change of the job, from its request to its end.
type change[W join.Waiter] struct {
	op    bootstrap.PsetOp
	kind  bootstrap.ChangeType
	state changeState
	// Rank, or user.
	requester int64

	associated *set[W]
	// nil if the change has none.
	leaving, joining, main *set[W]

	// Operate while starting, or Resize while unfinished.
	request   W
	isWaiting bool
	isPartial bool

	// Number of processes in the group.
	groupSize int
	// Waiting calls of Integrate, by rank.
	integrateCalls map[uint32][]integrateCall[W]
	// Outcome of the integration.
	resultName string
	// Processes that have received the change from a query.
	seenBy map[uint32]struct{}
	// Failure of an undone change.
	failure wire.FailureBody
}

// integrateCall is one waiting call of Integrate.
type integrateCall[W join.Waiter] struct {
	waiter  W
	provide string
}

// pendingQuery is a waiting Query of a process.
type pendingQuery[W join.Waiter] struct {
	waiter W
	rank   uint32
}

func (c *change[W]) joins(rank uint32) bool  { return c.joining != nil && c.joining.has(rank) }
func (c *change[W]) leaves(rank uint32) bool { return c.leaving != nil && c.leaving.has(rank) }

// isDelta reports whether a set is one of the changing processes.
func (c *change[W]) isDelta(s *set[W]) bool { return s != nil && (s == c.joining || s == c.leaving) }

// delta returns the name of the changing processes for one process. For Replace these are the
// joining ones if it joins, and otherwise the leaving ones.
func (c *change[W]) delta(rank uint32) string {
	if c.leaving == nil || c.joins(rank) {
		return c.joining.name
	}
	return c.leaving.name
}

// created returns the sets that the change creates, in the order of Operate's results.
func (c *change[W]) created() []*set[W] {
	return slices.DeleteFunc([]*set[W]{c.leaving, c.joining, c.main}, func(s *set[W]) bool { return s == nil })
}

func (c *change[W]) names() []string {
	var names []string
	for _, s := range c.created() {
		names = append(names, s.name)
	}
	return names
}

// begin begins a change of a set. w waits if processes have to be started.
func (t *Table[W]) begin(w W, requester int64, op bootstrap.PsetOp, s *set[W], b wire.OperateBody) ([]string, *wire.FailureBody) {
	adds := op == bootstrap.PsetAdd || op == bootstrap.PsetGrow || op == bootstrap.PsetReplace
	removes := op == bootstrap.PsetSub || op == bootstrap.PsetShrink || op == bootstrap.PsetReplace
	c := &change[W]{op: op, kind: kindOf(op), requester: requester, associated: s, isPartial: b.Partial,
		integrateCalls: map[uint32][]integrateCall[W]{}, seenBy: map[uint32]struct{}{}}
	var leaving []uint32
	var f *wire.FailureBody
	if removes {
		if leaving, f = t.selectLeaving(s, b.Sub); f != nil {
			return nil, f
		}
	} else if f := t.checkPresent(s); f != nil {
		return nil, f
	}
	if f := t.checkDisjoint(s); f != nil {
		return nil, f
	}
	if t.options.IsHeldByRank0 && slices.Contains(leaving, 0) {
		return nil, failf(wire.CodeLimit, "rank 0 of %q can't leave, because it holds the process sets of a job under this launcher: remove other members", s.name)
	}
	added := 0
	if adds {
		if added, f = t.countStartable(b.Add, leaving, b.Partial); f != nil {
			return nil, f
		}
	}
	const most = 3 // Both deltas, and the main set.
	if f := t.checkRoom(most, len(s.ranks)+2*added, b.Name); f != nil {
		return nil, f
	}
	for _, r := range s.ranks {
		if t.isPresent(r) {
			t.procs[r].change = c
			c.groupSize++
		}
	}
	hasMain := op == bootstrap.PsetGrow || op == bootstrap.PsetShrink || op == bootstrap.PsetReplace
	t.createSets(c, leaving, added, hasMain, b.Name)
	t.changes[c] = struct{}{}
	t.reportChange(ChangeBegun, c, "")
	if added > 0 || requester == user {
		c.request, c.isWaiting = w, true
		w.SetWithdraw(func(expired bool) wire.FailureBody { return t.withdraw(c, expired) })
	}
	if added > 0 {
		t.start(c)
		return nil, nil
	}
	names := c.names()
	if t.open(c); requester == user {
		return nil, nil
	}
	return names, nil
}

func kindOf(op bootstrap.PsetOp) bootstrap.ChangeType {
	switch op {
	case bootstrap.PsetAdd, bootstrap.PsetGrow:
		return bootstrap.ChangeAdd
	case bootstrap.PsetSub, bootstrap.PsetShrink:
		return bootstrap.ChangeSub
	}
	return bootstrap.ChangeReplace
}

// checkPresent refuses a set with members that are not present.
func (t *Table[W]) checkPresent(s *set[W]) *wire.FailureBody {
	ended := slices.DeleteFunc(slices.Clone(s.ranks), t.isPresent)
	if len(ended) == 0 {
		return nil
	}
	return &wire.FailureBody{Code: wire.CodeMissing, Failed: ended, Text: "remove them first (PsetShrink or PsetReplace with Sub 0, ferry resize --sub 0)"}
}

// checkDisjoint refuses a set with a member that is in the group of another change, and a set that is one of
// another change though its members have ended.
func (t *Table[W]) checkDisjoint(s *set[W]) *wire.FailureBody {
	for _, r := range s.ranks {
		if p := t.procs[r]; p != nil && p.change != nil && t.isPresent(r) {
			c := p.change
			return failf(wire.CodePending, "the change %q of %q has rank %d of %q: finish it first", c.delta(r), c.associated.name, r, s.name)
		}
	}
	if c := s.change; c != nil {
		return failf(wire.CodePending, "the change %q of %q uses %q: finish it first", c.delta(noRank), c.associated.name, s.name)
	}
	return nil
}

// createSets creates the sets of a change, hidden until it is open.
func (t *Table[W]) createSets(c *change[W], leaving []uint32, added int, hasMain bool, name string) {
	nameOf := func(kind string, isNamed bool) string {
		if isNamed && name != "" {
			return name
		}
		return t.makeName(kind)
	}
	if leaving != nil {
		c.leaving = t.create(nameOf("delta", !hasMain), leaving, c.requester)
	}
	if added > 0 {
		c.joining = t.create(nameOf("delta", !hasMain), nil, c.requester)
		t.assign(c.joining, added)
		t.memberCount += added
		for _, r := range c.joining.ranks {
			t.procs[r].change = c
			t.excusedRanks.add(r)
		}
		c.groupSize += added
	}
	if hasMain {
		var removed rankSet
		for _, r := range leaving {
			removed.add(r)
		}
		ranks := slices.DeleteFunc(slices.Clone(c.associated.ranks), removed.has)
		if c.joining != nil {
			ranks = append(ranks, c.joining.ranks...)
		}
		c.main = t.create(nameOf("set", true), ranks, c.requester)
	}
	for _, s := range c.created() {
		s.hiddenBy = c
		s.userCount++
	}
	c.associated.userCount++
	for _, s := range []*set[W]{c.associated, c.leaving, c.joining} {
		if s != nil {
			s.change = c
		}
	}
}

// answer gives the waiting request of a change its results.
func (t *Table[W]) answer(c *change[W]) {
	if c.isWaiting {
		c.isWaiting = false
		c.request.ClearWithdraw()
		reply(c.request, wire.NamesBody{Names: c.names()})
	}
}

// open shows a change to its group.
func (t *Table[W]) open(c *change[W]) {
	c.state = stateOpen
	for _, s := range c.created() {
		s.hiddenBy = nil
	}
	t.reportChange(ChangeOpened, c, "")
	t.wakeGroup(c)
	switch {
	case c.groupSize == 0: // All members have ended.
		t.setIntegrated(c)
		t.finish(c)
	case len(c.integrateCalls) == c.groupSize:
		t.complete(c)
	}
}
