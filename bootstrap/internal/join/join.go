// Package join is what processes wait for in a bootstrap: fences and group
// constructs that others have to enter, and values that others have to put.
// Whoever serves those of a job, the launcher or one of the members, does so by
// the same rules, and processes get the same errors.
//
// It is pure logic, without time, locks or connections: whoever uses it holds its
// own lock during every call, except where a comment says otherwise.
package join

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// A Waiter is a call of a process, to be answered once.
type Waiter interface {
	comparable
	// Waits says how the wait is ended before its time.
	SetWithdraw(Withdraw)
	// Done says that nothing of what Waits said is to be called any more.
	ClearWithdraw()
	// Answer gives the answer, encoded. Others may get the same bytes.
	Answer(k wire.Kind, body []byte)
}

// Withdraw ends the wait of a Waiter, whose deadline has passed (expired) or whose
// caller has gone, and returns what to answer it with.
type Withdraw func(expired bool) wire.FailureBody

// Fail answers w, which may have waited, with f.
func Fail[W Waiter](w W, f wire.FailureBody) {
	w.ClearWithdraw()
	w.Answer(wire.Failure, wire.EncodeBody(f))
}

// A Table holds the fences and constructs of the processes of a namespace that not
// all members have entered yet.
type Table[W Waiter] struct {
	Namespace string
	Size      int
	// Ended reports whether a process will never come (again).
	HasEnded func(rank uint32) bool
	// Early reports whether a call is answered before others, because its answer goes through a
	// process that gets one of its own; nil: none is.
	IsAnsweredFirst func(W) bool
	joins           map[string][]*Join[W]
}

// A Join is one instance of a fence or construct, from its first member's call to its
// last's. Its memory grows with the calls, and not with the group, which a call of a few bytes names.
type Join[W Waiter] struct {
	Kind            wire.Kind
	Group           wire.Runs
	key             string
	size            int
	entered         map[int]member[W] // Waiting calls, by position in the group.
	isAnsweredFirst func(W) bool
}

type member[W Waiter] struct {
	waiter  W
	payload []byte
}

// Enter enters w, the call of a process, into an instance. It returns the instance if w
// was its last member: that is out of the table then, and for Complete. A group that is
// not valid, or has a member that has ended, is answered. An error means that the body is
// no group's.
func (t *Table[W]) Enter(w W, rank uint32, kind wire.Kind, b wire.JoinBody) (*Join[W], error) {
	// Equal for calls that belong together. The group is a CBOR value and so delimits
	// itself: no two pairs are equal.
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

// put has w, a member's call, wait in j.
func (t *Table[W]) addMember(j *Join[W], at int, w W, payload []byte) {
	j.entered[at] = member[W]{w, payload}
	w.SetWithdraw(func(expired bool) wire.FailureBody { return t.withdrawMember(j, at, expired) })
}

// find returns the oldest instance of key in which rank is not yet, and rank's
// position there. A process that is in one already means the next.
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
	// A copy: a caller may be ranging over the old one.
	js := slices.DeleteFunc(slices.Clone(t.joins[j.key]), func(x *Join[W]) bool { return x == j })
	if t.joins[j.key] = js; len(js) == 0 {
		delete(t.joins, j.key)
	}
}

// Complete answers every member of j, which Enter has returned. What all get alike is
// encoded once: that may take long, and needs no lock. context is the id of a construct.
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

// each calls f for those who are in j: the early ones first, and then the others from the
// group's last to its first. Who has its answer may close, and must not have to answer others
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

// ProcEnded ends every instance that waits for rank, which will never come.
func (t *Table[W]) ProcEnded(rank uint32) {
	for _, js := range t.joins {
		for _, j := range js {
			if j.Group.Index(rank) >= 0 {
				t.failJoin(j, wire.FailureBody{Code: wire.CodeMissing, Failed: t.endedMembers(j)})
			}
		}
	}
}

// Absent returns the ranks that some instance waits for, each once.
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

// fail ends j, and answers all who wait in it with f, which is encoded once.
func (t *Table[W]) failJoin(j *Join[W], f wire.FailureBody) {
	t.remove(j)
	body := wire.EncodeBody(f)
	j.forEach(func(w W) {
		w.ClearWithdraw()
		w.Answer(wire.Failure, body)
	})
}

// absent returns the ranks that j still waits for.
func (j *Join[W]) absent() []uint32 {
	var out []uint32
	for at, rank := range j.Group.All() {
		if _, isHere := j.entered[at]; !isHere {
			out = append(out, rank)
		}
	}
	return out
}

// endedMembers returns the members of j that will never come.
func (t *Table[W]) endedMembers(j *Join[W]) (ended []uint32) {
	for _, rank := range j.Group.All() {
		if t.HasEnded(rank) {
			ended = append(ended, rank)
		}
	}
	return ended
}

// leave takes a member out; when its deadline has passed, the instance ends for all, and
// everyone learns the same names.
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

// shiftForward moves the calls that the member has in later instances than j one instance
// forward each: its first call is the one that goes with the others' first. None is complete
// by that: as many are in each as before, but in the last, which may be empty now.
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
