package sets

import (
	"slices"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// Query answers the change of a set. With b.Wait it waits for one that the process has not
// been given.
func (t *Table[W]) Query(w W, rank uint32, b wire.LookupBody) {
	s, f := t.find(rank, b.Name)
	if f != nil {
		join.Fail(w, *f)
		return
	}
	found, f := t.query(s, rank, b.Wait)
	switch {
	case f != nil:
		join.Fail(w, *f)
	case found.Found || !b.Wait:
		reply(w, found)
	default:
		s.queries = append(s.queries, pendingQuery[W]{w, rank})
		t.queriedSets[s] = struct{}{}
		w.SetWithdraw(func(bool) wire.FailureBody {
			t.removeQuery(s, w)
			return wire.FailureBody{Code: wire.CodeWithdrawn}
		})
	}
}

func (t *Table[W]) removeQuery(s *set[W], w W) {
	s.queries = slices.DeleteFunc(s.queries, func(q pendingQuery[W]) bool { return q.waiter == w })
	if len(s.queries) == 0 {
		delete(t.queriedSets, s)
	}
}

// query returns the change of a set for a process; isNew leaves out one that the process
// has been given.
func (t *Table[W]) query(s *set[W], rank uint32, isNew bool) (wire.QueriedBody, *wire.FailureBody) {
	if c := t.visibleChange(s, rank); c != nil {
		if _, known := c.seenBy[rank]; isNew && known {
			return wire.QueriedBody{}, nil
		}
		c.seenBy[rank] = struct{}{}
		found := wire.QueriedBody{Found: true, Type: uint8(c.kind), Delta: c.delta(rank), Included: c.joins(rank) || c.leaves(rank)}
		if c.main != nil {
			found.Main = c.main.name
		}
		return found, nil
	}
	ended := t.endedMembers(s)
	if len(ended) == 0 || isNew && s.failedQueries[rank] >= len(ended) {
		return wire.QueriedBody{}, nil
	}
	if f := t.makeFailed(s, rank, ended); f != nil {
		return wire.QueriedBody{}, f
	}
	if s.failedQueries == nil {
		s.failedQueries = map[uint32]int{}
	}
	s.failedQueries[rank] = len(ended)
	return wire.QueriedBody{Found: true, Type: uint8(bootstrap.ChangeFailed), Delta: s.failedSet.name}, nil
}

// visibleChange returns the unfinished change of a set that a process sees. mpi://SELF has
// the one whose delta has the process.
func (t *Table[W]) visibleChange(s *set[W], rank uint32) *change[W] {
	c := s.change
	if p := t.procs[rank]; p != nil && s == p.self && p.change != nil && (p.change.joins(rank) || p.change.leaves(rank)) {
		c = p.change
	}
	if c == nil || c.state == stateStarting && !c.joins(rank) {
		return nil
	}
	return c
}

// endedMembers returns the members of a set that have ended, but not left.
func (t *Table[W]) endedMembers(s *set[W]) []uint32 {
	if s.endedAtCount != t.endCount {
		s.endedAtCount, s.endedRanks = t.endCount, nil
		for _, r := range s.ranks {
			if t.procs[r] == nil && !t.leftRanks.has(r) {
				s.endedRanks = append(s.endedRanks, r)
			}
		}
	}
	return s.endedRanks
}

// makeFailed makes the set of the ended members, unless the previous query made it.
func (t *Table[W]) makeFailed(s *set[W], rank uint32, ended []uint32) *wire.FailureBody {
	if old := s.failedSet; old != nil && len(old.ranks) == len(ended) && t.sets[bootstrap.PsetKey(old.name)] == old {
		return nil
	}
	if f := t.checkRoom(1, len(ended), ""); f != nil {
		return f
	}
	s.failedSet = t.create(t.makeName("failed"), ended, int64(rank))
	return nil
}

// wakeQueries answers the pending queries of a set that have a change now.
func (t *Table[W]) wakeQueries(s *set[W]) {
	for _, q := range slices.Clone(s.queries) {
		found, f := t.query(s, q.rank, true)
		if f == nil && !found.Found {
			continue
		}
		t.removeQuery(s, q.waiter)
		if f != nil {
			join.Fail(q.waiter, *f)
			continue
		}
		q.waiter.ClearWithdraw()
		reply(q.waiter, found)
	}
}

// wakeGroup answers the queries for a change that has become visible.
func (t *Table[W]) wakeGroup(c *change[W]) {
	t.wakeQueries(c.associated)
	for _, s := range []*set[W]{c.leaving, c.joining} {
		if s == nil {
			continue
		}
		t.wakeQueries(s)
		for _, r := range s.ranks {
			if p := t.procs[r]; p != nil && p.self != nil && p.self != c.associated {
				t.wakeQueries(p.self)
			}
		}
	}
}

// SetData stores a value of a set, and answers lookups of it.
func (t *Table[W]) SetData(w W, rank uint32, b wire.DataBody) {
	s, f := t.find(rank, b.Pset)
	if f != nil {
		join.Fail(w, *f)
		return
	}
	s.data.Set(b.Key, join.EncodeValue(b.Value))
	reply(w, wire.Empty{})
}

// GetData answers a value of a set, and waits for it.
func (t *Table[W]) GetData(w W, rank uint32, b wire.KeyBody) {
	s, f := t.find(rank, b.Pset)
	if f != nil {
		join.Fail(w, *f)
		return
	}
	if v, ok := s.data.Get(b.Key); ok {
		w.Answer(wire.Reply, v)
		return
	}
	s.data.Await(b.Key, w, func(bool) wire.FailureBody { return wire.FailureBody{Code: wire.CodeWithdrawn} })
}
