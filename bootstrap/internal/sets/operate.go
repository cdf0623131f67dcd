package sets

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// Operate performs an operation on sets, or begins a change. Only an operation that starts
// processes waits.
func (t *Table[W]) Operate(w W, rank uint32, b wire.OperateBody) {
	names, f := t.operate(w, rank, b)
	switch {
	case f != nil:
		join.Fail(w, *f)
	case names != nil:
		reply(w, wire.NamesBody{Names: names})
	}
}

// operate returns the names of the results, or nil if w waits for them.
func (t *Table[W]) operate(w W, rank uint32, b wire.OperateBody) ([]string, *wire.FailureBody) {
	op := bootstrap.PsetOp(b.Op)
	operands, f := t.operands(op, rank, b.Operands)
	if f != nil {
		return nil, f
	}
	if f := t.checkName(b.Name); f != nil {
		return nil, f
	}
	switch op {
	case bootstrap.PsetUnion, bootstrap.PsetDifference, bootstrap.PsetIntersection:
		return t.derive(rank, op, operands, b.Name, combine(op, operands))
	case bootstrap.PsetSplit:
		parts, f := split(operands[0], b.Sizes)
		if f != nil {
			return nil, f
		}
		return t.derive(rank, op, operands, b.Name, parts...)
	case bootstrap.PsetAdd, bootstrap.PsetSub, bootstrap.PsetGrow, bootstrap.PsetShrink, bootstrap.PsetReplace:
		return t.begin(w, int64(rank), op, operands[0], b)
	}
	return nil, failf(wire.CodeLimit, "the operation %v is unknown", op)
}

// operands finds the sets of an operation, which have members.
func (t *Table[W]) operands(op bootstrap.PsetOp, rank uint32, names []string) ([]*set[W], *wire.FailureBody) {
	takesMany := op <= bootstrap.PsetIntersection
	if len(names) == 0 || len(names) > 1 && !takesMany {
		return nil, failf(wire.CodePset, "%d operands of %v: want one, or two and more of union, difference and intersection", len(names), op)
	}
	all := make([]*set[W], len(names))
	for i, name := range names {
		s, f := t.find(rank, name)
		if f != nil {
			return nil, f
		}
		if len(s.ranks) == 0 {
			return nil, failf(wire.CodePset, "%q has no members", s.name)
		}
		all[i] = s
	}
	return all, nil
}

// combine returns the members of the union, difference or intersection.
func combine[W join.Waiter](op bootstrap.PsetOp, operands []*set[W]) []uint32 {
	first, others := operands[0], operands[1:]
	ranks := []uint32{}
	var taken rankSet
	take := func(r uint32) {
		if !taken.has(r) {
			taken.add(r)
			ranks = append(ranks, r)
		}
	}
	if op == bootstrap.PsetUnion {
		for _, s := range operands {
			for _, r := range s.ranks {
				take(r)
			}
		}
		return ranks
	}
	for _, r := range first.ranks {
		inAll, inAny := true, false
		for _, s := range others {
			has := s.has(r)
			inAll, inAny = inAll && has, inAny || has
		}
		if op == bootstrap.PsetIntersection && inAll || op == bootstrap.PsetDifference && !inAny {
			take(r)
		}
	}
	return ranks
}

// split returns consecutive parts of the members.
func split[W join.Waiter](s *set[W], sizes []int64) ([][]uint32, *wire.FailureBody) {
	rest := s.ranks
	parts := make([][]uint32, 0, len(sizes))
	for _, n := range sizes {
		if n < 0 || n > int64(len(rest)) {
			return nil, failf(wire.CodeRank, "sizes %s: %q has %d members", formatNumbers(sizes), s.name, len(s.ranks))
		}
		parts = append(parts, rest[:n:n])
		rest = rest[n:]
	}
	if len(rest) > 0 || len(parts) == 0 {
		return nil, failf(wire.CodeRank, "sizes %s: %q has %d members", formatNumbers(sizes), s.name, len(s.ranks))
	}
	return parts, nil
}

// formatNumbers lists the first of some numbers.
func formatNumbers[N uint32 | int64](numbers []N) string {
	const most = 16
	if more := len(numbers) - most; more > 0 {
		return fmt.Sprintf("%v and %d more", numbers[:most], more)
	}
	return fmt.Sprint(numbers)
}

// derive makes a set of each list of members, the results of an operation.
func (t *Table[W]) derive(rank uint32, op bootstrap.PsetOp, operands []*set[W], name string, members ...[]uint32) ([]string, *wire.FailureBody) {
	if name != "" && len(members) > 1 {
		return nil, failf(wire.CodePset, "%q names one of %d results: leave Name empty", name, len(members))
	}
	total := 0
	for _, ranks := range members {
		total += len(ranks)
	}
	if f := t.checkRoom(len(members), total, name); f != nil {
		return nil, f
	}
	names := make([]string, len(members))
	for i, ranks := range members {
		if names[i] = name; name == "" {
			names[i] = t.makeName("set")
		}
		t.create(names[i], ranks, int64(rank))
	}
	if t.options.Observe != nil {
		ev := Event{Kind: SetsMade, Op: op, Results: names, Requester: rank}
		for _, s := range operands {
			ev.Operands = append(ev.Operands, s.name)
		}
		t.report(ev)
	}
	return names, nil
}

// selectLeaving returns the n members that leave, in the order of the set. These are first ended
// members, and then the last ones. 0 means exactly the ended members.
func (t *Table[W]) selectLeaving(s *set[W], n int64) ([]uint32, *wire.FailureBody) {
	var ended []uint32
	for _, r := range s.ranks {
		if !t.isPresent(r) {
			ended = append(ended, r)
		}
	}
	switch {
	case n < 0 || n > int64(len(s.ranks)):
		return nil, failf(wire.CodeRank, "%d members to remove: %q has %d", n, s.name, len(s.ranks))
	case n == 0 && len(ended) == 0:
		return nil, failf(wire.CodeRank, "no members to remove: none of the %d members of %q has ended", len(s.ranks), s.name)
	case n == 0:
		return ended, nil
	}
	var chosen rankSet
	for _, r := range ended[:min(int(n), len(ended))] {
		chosen.add(r)
	}
	more := int(n) - min(int(n), len(ended))
	for _, r := range slices.Backward(s.ranks) {
		if more > 0 && t.isPresent(r) {
			chosen.add(r)
			more--
		}
	}
	return slices.DeleteFunc(slices.Clone(s.ranks), func(r uint32) bool { return !chosen.has(r) }), nil
}

// countStartable returns the number of processes that can be started, up to n. leaving are about
// to leave.
func (t *Table[W]) countStartable(n int64, leaving []uint32, partial bool) (int, *wire.FailureBody) {
	free := int64(t.options.Most - t.presentCount)
	for _, r := range leaving {
		if t.isPresent(r) {
			free++
		}
	}
	ranks := int64(MaxRanks - int(t.nextRank))
	most := max(0, min(free, ranks))
	switch {
	case t.options.Order == nil || t.options.StartsNone:
		return 0, failf(wire.CodeLimit, "%s starts no processes: %s", t.options.Launcher, cmp.Or(t.options.Remedy, "start the job with ferry run --max-ranks"))
	case n < 1:
		return 0, failf(wire.CodeRank, "%d new processes: want at least 1", n)
	case n <= most:
		return int(n), nil
	case partial && most > 0:
		return int(most), nil
	case ranks < free:
		return 0, failf(wire.CodeLimit, "new processes: %d requested, %d fit: the job has assigned %d of %d ranks", n, most, t.nextRank, MaxRanks)
	}
	return 0, failf(wire.CodeLimit, "new processes: %d requested, %d fit: the job may have %d at a time (%s)", n, most, t.options.Most, cmp.Or(t.options.MostOption, "--max-ranks"))
}
