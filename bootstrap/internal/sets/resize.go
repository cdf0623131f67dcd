package sets

import (
	"strings"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// Resize begins a change that a user requests, of a set or of the set that finished changes have
// made of it. b has one operand, for PsetGrow, PsetShrink or PsetReplace. w waits until the
// change is integrated, which also finishes it. A withdrawal before that undoes the change.
func (t *Table[W]) Resize(w W, b wire.OperateBody) {
	op := bootstrap.PsetOp(b.Op)
	f := t.checkName(b.Name)
	if f == nil && op != bootstrap.PsetGrow && op != bootstrap.PsetShrink && op != bootstrap.PsetReplace {
		f = failf(wire.CodeLimit, "a user can't request %v: want grow, shrink or replace", op)
	}
	var s *set[W]
	if f == nil {
		s, f = t.latestSet(b.Operands)
	}
	if f == nil {
		_, f = t.begin(w, user, op, s, b)
	}
	if f != nil {
		join.Fail(w, *f)
	}
}

// latestSet returns the set that finished changes have made of the one that a user names.
func (t *Table[W]) latestSet(names []string) (*set[W], *wire.FailureBody) {
	if len(names) != 1 {
		return nil, failf(wire.CodePset, "%d process sets: want one", len(names))
	}
	name := names[0]
	s := t.sets[bootstrap.PsetKey(name)]
	if strings.EqualFold(name, bootstrap.PsetWorld) {
		s = t.world
	}
	switch {
	case s == nil && isBuiltin(name):
		return nil, failf(wire.CodePset, "%q differs from process to process: name %s, or a set of the job", name, bootstrap.PsetWorld)
	case s == nil || s.hiddenBy != nil:
		return nil, t.unknownSetFailure(noRank, name, bootstrap.PsetKey(name))
	case s.successor.serial != 0:
		next := s.successor
		if s = t.sets[bootstrap.PsetKey(next.name)]; s == nil || s.serial != next.serial {
			return nil, failf(wire.CodePset, "%q became %q, which is deleted: name the set that the program uses", name, next.name)
		}
	}
	if len(s.ranks) == 0 {
		return nil, failf(wire.CodePset, "%q has no members", s.name)
	}
	return s, nil
}

// noRank is in no change.
const noRank = 1<<32 - 1
