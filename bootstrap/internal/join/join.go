// Package join has the waiting calls of a bootstrap, which are fences, group constructs and reads
// of values. A launcher and the members of a job use the same rules and errors.
//
// It is pure logic without time, locks or connections. The caller holds its own lock during every
// call, except where a comment excludes it.
package join

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// A Waiter is a call of a process that is answered once.
type Waiter interface {
	comparable
	// SetWithdraw sets the function that ends the wait early.
	SetWithdraw(Withdraw)
	// ClearWithdraw drops that function.
	ClearWithdraw()
	// Answer sends the encoded answer. Waiters may share the bytes.
	Answer(k wire.Kind, body []byte)
}

// Withdraw ends the wait of a Waiter, and returns the answer for it. expired means that its
// deadline has passed, and otherwise the caller has withdrawn.
type Withdraw func(expired bool) wire.FailureBody

// Fail answers w with f, whether it has waited or not.
func Fail[W Waiter](w W, f wire.FailureBody) {
	w.ClearWithdraw()
	w.Answer(wire.Failure, wire.EncodeBody(f))
}

// A Table holds the incomplete fences and constructs of the processes of a namespace.
type Table[W Waiter] struct {
	Namespace string
	Size      int
	// HasEnded reports whether a process never returns.
	HasEnded func(rank uint32) bool
	// IsAnsweredFirst reports whether a call is answered before others, because a process relays
	// its answer that gets one of its own. nil means none.
	IsAnsweredFirst func(W) bool
	joins           map[string][]*Join[W]
}

// A Join is one instance of a fence or construct, from the call of its first member to that of its
// last. Its memory grows with the calls and not with the group, because a call of a few bytes can
// name a large group.
type Join[W Waiter] struct {
	Kind  wire.Kind
	Group wire.Runs
	key   string
	size  int
	// Waiting calls, by position in the group.
	entered         map[int]member[W]
	isAnsweredFirst func(W) bool
}

type member[W Waiter] struct {
	waiter  W
	payload []byte
}

// Enter enters w, the call of rank, into an instance. If w completes the instance, Enter removes it
// from the table and returns it for Complete. Enter answers w if the group is invalid or has a
// member that has ended. An error means that the body is malformed.
func (t *Table[W]) Enter(w W, rank uint32, kind wire.Kind, b wire.JoinBody) (*Join[W], error) {
	// Calls with equal keys belong together. The group is a CBOR value, so distinct pairs of group
	// and tag have distinct keys.
	key := string([]byte{byte(kind)}) + string(b.Group) + b.Tag
	j, at := t.find(key, rank)
	if j == nil {
		group, err := wire.Decode[wire.Runs](b.Group)
		if err != nil {
			return nil, err
		}
		if err := group.Check(t.Namespace, t.Size); err != nil {
			Fail(w, wire.FailureBody{Code: wire.CodeGroup, Text: err.Error()})
			return nil, nil
		}
		if at = group.Index(rank); at < 0 {
			Fail(w, wire.FailureBody{Code: wire.CodeGroup, Text: "the caller is not a member"})
			return nil, nil
		}
		j = &Join[W]{Kind: kind, Group: group, key: key, size: group.Len(), entered: map[int]member[W]{}, isAnsweredFirst: t.IsAnsweredFirst}
		if failed := t.endedMembers(j); len(failed) > 0 {
			Fail(w, wire.FailureBody{Code: wire.CodeMissing, Failed: failed})
			return nil, nil
		}
		if t.joins == nil {
			t.joins = map[string][]*Join[W]{}
		}
		t.joins[key] = append(t.joins[key], j)
	}
	t.addMember(j, at, w, b.Payload)
	if len(j.entered) < j.size {
		return nil, nil
	}
	t.remove(j)
	for _, m := range j.entered {
		m.waiter.ClearWithdraw()
	}
	return j, nil
}

// addMember adds a member's waiting call to j.
func (t *Table[W]) addMember(j *Join[W], at int, w W, payload []byte) {
	j.entered[at] = member[W]{w, payload}
	w.SetWithdraw(func(expired bool) wire.FailureBody { return t.withdrawMember(j, at, expired) })
}

// find returns the oldest instance of key that rank has not entered, and the position of rank.
func (t *Table[W]) find(key string, rank uint32) (*Join[W], int) {
	for _, j := range t.joins[key] {
		at := j.Group.Index(rank)
		if _, isHere := j.entered[at]; at >= 0 && !isHere {
			return j, at
		}
	}
	return nil, -1
}

func (t *Table[W]) remove(j *Join[W]) {
	// A caller may range over the old slice.
	js := slices.DeleteFunc(slices.Clone(t.joins[j.key]), func(x *Join[W]) bool { return x == j })
	if t.joins[j.key] = js; len(js) == 0 {
		delete(t.joins, j.key)
	}
}

// Complete answers every member of j, which Enter has returned. It needs no lock, because it
// encodes the common answer, which may take long. context is the id of a construct.
func (j *Join[W]) Complete(context uint64) {
	var body any = wire.Empty{}
	if j.Kind == wire.Construct {
		payloads := make([][]byte, j.size)
		for at, m := range j.entered {
			payloads[at] = m.payload
		}
		body = wire.ConstructedBody{ContextID: context, Payloads: payloads}
	}
	kind, answer := wire.Reply, wire.EncodeBody(body)
	if _, err := wire.Header(kind, 0, len(answer)); err != nil {
		kind, answer = wire.Failure, wire.EncodeBody(wire.FailureBody{Code: wire.CodeLimit,
			Text: fmt.Sprintf("the payloads of %d members do not fit into one frame: %v; set bootstrap.roots_from below %d, which needs a launcher with a map of the nodes", j.size, err, j.size)})
	}
	j.forEach(func(w W) { w.Answer(kind, answer) })
}

// forEach calls f for all members, first for those of IsAnsweredFirst, and then from the last
// position to the first. A member may close after its answer, so it must not have to relay answers
// then.
func (j *Join[W]) forEach(f func(W)) {
	positions := slices.Sorted(maps.Keys(j.entered))
	for _, early := range []bool{true, false} {
		for _, at := range slices.Backward(positions) {
			if w := j.entered[at].waiter; early == (j.isAnsweredFirst != nil && j.isAnsweredFirst(w)) {
				f(w)
			}
		}
	}
}

// ProcEnded fails every instance that waits for rank.
func (t *Table[W]) ProcEnded(rank uint32) {
	for _, js := range t.joins {
		for _, j := range js {
			if j.Group.Index(rank) >= 0 {
				t.failJoin(j, wire.FailureBody{Code: wire.CodeMissing, Failed: t.endedMembers(j)})
			}
		}
	}
}

// Absent returns the ranks that any instance waits for.
func (t *Table[W]) Absent() []uint32 {
	var out []uint32
	for _, js := range t.joins {
		for _, j := range js {
			out = append(out, j.absent()...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// failJoin removes j and answers all its members with f, which is encoded once.
func (t *Table[W]) failJoin(j *Join[W], f wire.FailureBody) {
	t.remove(j)
	body := wire.EncodeBody(f)
	j.forEach(func(w W) {
		w.ClearWithdraw()
		w.Answer(wire.Failure, body)
	})
}

// absent returns the ranks that j waits for.
func (j *Join[W]) absent() []uint32 {
	var out []uint32
	for at, rank := range j.Group.All() {
		if _, isHere := j.entered[at]; !isHere {
			out = append(out, rank)
		}
	}
	return out
}

// endedMembers returns the members of j that never return.
func (t *Table[W]) endedMembers(j *Join[W]) (ended []uint32) {
	for _, rank := range j.Group.All() {
		if t.HasEnded(rank) {
			ended = append(ended, rank)
		}
	}
	return ended
}

// withdrawMember removes a member. If its deadline has passed, the instance fails for all members
// with the same names.
func (t *Table[W]) withdrawMember(j *Join[W], at int, expired bool) wire.FailureBody {
	missing := j.absent()
	delete(j.entered, at)
	if expired {
		f := wire.FailureBody{Code: wire.CodeMissing, Missing: missing}
		t.failJoin(j, f)
		return f
	}
	t.shiftForward(j, at)
	return wire.FailureBody{Code: wire.CodeWithdrawn, Missing: missing}
}

// shiftForward moves the calls of the member in later instances one instance forward, so that its
// first call stays with the first calls of the others. This completes no instance, because each has
// as many calls as before, except the last one, which may be empty.
func (t *Table[W]) shiftForward(j *Join[W], at int) {
	js := t.joins[j.key]
	for _, next := range js[slices.Index(js, j)+1:] {
		m, isHere := next.entered[at]
		if !isHere {
			break
		}
		t.addMember(j, at, m.waiter, m.payload)
		delete(next.entered, at)
		j = next
	}
	if len(j.entered) == 0 {
		t.remove(j)
	}
}
