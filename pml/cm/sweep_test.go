package cm_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/cm"
	"github.com/ferrympi/ferry/pml/pmltest"
)

var errPending = fmt.Errorf("a reason: %w", framework.ErrProcFailedPending)

// dies reports the failure of rank 1 to rank 0, and optionally suspends receives from any source for this reason.
func dies(w *pmltest.World, c []pml.Comm, why error) {
	w.Procs[0].Module.PeerChanged(framework.FailedEvent(w.Group()[1].Incarnation, "killed"))
	c[0].Suspend(pml.PointToPoint, why)
}

// slowCancels is an in-memory network that withdraws one receive per poll, up to a number of them.
type slowCancels struct {
	mtl.Component
	allowed *atomic.Int64
}

func newSlowCancels(allowed int64) slowCancels {
	s := slowCancels{mtltest.NewMemory(eager).Component(), new(atomic.Int64)}
	s.allowed.Store(allowed)
	return s
}

func (s slowCancels) Open(ctx context.Context, env mtl.Env) (mtl.Module, error) {
	m, err := s.Component.Open(ctx, env)
	return &slowCancelsModule{Module: m, allowed: s.allowed}, err
}

type slowCancelsModule struct {
	mtl.Module
	allowed  *atomic.Int64
	canceled []*mtl.Op
}

func (m *slowCancelsModule) Interval() time.Duration { return 100 * time.Microsecond }

func (m *slowCancelsModule) Cancel(op *mtl.Op) { m.canceled = append(m.canceled, op) }

func (m *slowCancelsModule) Poll() int {
	if len(m.canceled) > 0 && m.allowed.Load() > 0 {
		m.allowed.Add(-1)
		m.Module.Cancel(m.canceled[0])
		m.canceled = m.canceled[1:]
	}
	return m.Module.Poll()
}

// completed returns the number of requests that are complete.
func completed(all []started) (n int) {
	for _, r := range all {
		if _, done, err := r.r.Peek(r.gen); done && err == nil {
			n++
		}
	}
	return n
}

// suspensionCases returns the kit's cases of receives from any source after a failure.
func suspensionCases(s pmltest.Stack, policy cid.Policy) (some kittest.Cases) {
	for _, c := range pmltest.Cases(s, policy) {
		for _, part := range []string{"Suspended", "ReceivesPosted", "ReceivesFromAny", "NoMemberIsLeft"} {
			if strings.Contains(c.Name, part) {
				some = append(some, c)
				break
			}
		}
	}
	return some
}

func TestSweep_NetworkWithdrawsOneReceiveInAPoll_OrderIsKept(t *testing.T) {
	suspensionCases(pmltest.Stack{PML: cm.Component(), MTL: newSlowCancels(math.MaxInt64)}, cid.PolicyAgree).Run(t)
}

// TestSweep_MessageComesDuringTheWithdrawal_OldestReceiveMatches delivers a message after one receive of three was withdrawn.
func TestSweep_MessageComesDuringTheWithdrawal_OldestReceiveMatches(t *testing.T) {
	net := newSlowCancels(1)
	w := pmltest.OpenWorld(t, pmltest.Stack{PML: cm.Component(), MTL: net}, 3)
	c := w.Comms(t, cid.PolicyAgree)
	bufs := make([][]byte, 3)
	var all []started
	for i := range bufs {
		bufs[i] = make([]byte, 1)
		all = append(all, start(t)(c[0].Irecv(pml.Buffer{Bytes: bufs[i]}, pml.AnySource, 1, pml.PointToPoint)))
	}
	dies(w, c, nil)
	until(t, "a withdrawal", func() bool {
		_, done, err := all[0].r.Test(all[0].gen)
		return net.allowed.Load() == 0 && !done && err == nil
	})
	for i, r := range all {
		send(t, c[2], 0, 1, string(rune('0'+i)))
		if i == 0 {
			until(t, "a match", func() bool { return completed(all) == 1 })
			net.allowed.Store(math.MaxInt64)
		}
		if _, err := r.wait(t); err != nil || bufs[i][0] != byte('0'+i) {
			t.Errorf("receive %d: message %q, %v", i, bufs[i], err)
		}
	}
}

// TestSweep_SearchDuringTheWithdrawal_MessageMatches searches for the messages of rank 2, as at its end, after the younger
// receive of two was withdrawn.
func TestSweep_SearchDuringTheWithdrawal_MessageMatches(t *testing.T) {
	net := newSlowCancels(1)
	w := pmltest.OpenWorld(t, pmltest.Stack{PML: cm.Component(), MTL: net}, 3)
	c := w.Comms(t, cid.PolicyAgree)
	meet(t, c, 2)
	older, wild := start(t)(recvInto(c[0], pml.AnySource, 7)), start(t)(recvInto(c[0], pml.AnySource, 1))
	dies(w, c, nil)
	until(t, "a withdrawal", func() bool {
		_, done, err := wild.r.Test(wild.gen)
		return net.allowed.Load() == 0 && !done && err == nil
	})
	send(t, c[2], 0, 1, "message")
	if err := c[2].Send(t.Context(), pml.Buffer{}, 0, 1, pml.Collective, pml.Standard); err != nil {
		t.Fatal(err)
	}
	if _, err := c[0].Recv(t.Context(), pml.Buffer{}, 2, 1, pml.Collective); err != nil { // Both messages have arrived.
		t.Fatal(err)
	}
	cm.Pull(w.Procs[0].Module, 2)
	net.allowed.Store(math.MaxInt64)
	if st, err := wild.wait(t); err != nil || st.Source != 2 {
		t.Errorf("%+v, %v", st, err)
	}
	send(t, c[2], 0, 7, "message")
	if _, err := older.wait(t); err != nil {
		t.Error(err)
	}
}

func TestSweep_CancelsAndMessagesAreLate_OrderIsKept(t *testing.T) {
	suspensionCases(stack(mtltest.Options{Inject: 4 << 20, Faults: mtltest.Faults{Polls: 5}}), cid.PolicyLazy).Run(t)
}

// TestSweep_HalfSentMessageOfTheDeadArrivesLate_MatchesNoReceiveFromAny checks that the network has no such receive after the report.
func TestSweep_HalfSentMessageOfTheDeadArrivesLate_MatchesNoReceiveFromAny(t *testing.T) {
	w := pmltest.OpenWorld(t, stack(mtltest.Options{Faults: mtltest.Faults{Polls: 5}}), 3)
	c := w.Comms(t, cid.PolicyAgree)
	wild := start(t)(c[0].Irecv(pml.Buffer{Bytes: make([]byte, long)}, pml.AnySource, 1, pml.PointToPoint))
	dies(w, c, errPending)
	if _, ok, err := c[0].Iprobe(pml.AnySource, 2, pml.PointToPoint); ok || err != errPending { // After the withdrawal.
		t.Errorf("probe: %t, %v", ok, err)
	}
	start(t)(c[1].Isend(pml.Buffer{Bytes: make([]byte, long)}, 0, 1, pml.PointToPoint, pml.Standard))
	if err := w.Kill(1); err != nil {
		t.Fatal(err)
	}
	_, err := wild.wait(t)
	wantErr(t, "the receive", err, errPending)
	c[0].Suspend(pml.PointToPoint, nil)
	send(t, c[2], 0, 2, "later than the message of the dead")
	receive(t, c[0], 2, 2, "later than the message of the dead")
	send(t, c[2], 0, 1, "message")
	if st, err := wild.wait(t); err != nil || st.Source != 2 {
		t.Errorf("the receive: %+v, %v", st, err)
	}
}

// TestSweep_CommunicatorIsClosed_ReceivesMatch checks that messages without a receive are dropped meanwhile.
func TestSweep_CommunicatorIsClosed_ReceivesMatch(t *testing.T) {
	w := pmltest.OpenWorld(t, stack(mtltest.Options{}), 3)
	c := w.Comms(t, cid.PolicyAgree)
	meet(t, c, 1)
	wild, known := start(t)(recvInto(c[0], pml.AnySource, 1)), start(t)(recvInto(c[0], 2, 1))
	dies(w, c, nil)
	c[0].Close()
	unwanted := start(t)(isend(c[2], 0, 2, pml.Standard))
	for _, r := range []started{wild, known} {
		send(t, c[2], 0, 1, "message")
		if st, err := r.wait(t); err != nil || st.Source != 2 {
			t.Errorf("%+v, %v", st, err)
		}
	}
	if _, err := unwanted.wait(t); err != nil {
		t.Errorf("a message without a receive: %v", err)
	}
	c[2].Close()
	w.Procs[2].Module.PeerChanged(framework.FailedEvent(w.Group()[1].Incarnation, "killed"))
	until(t, "rest", func() bool { _, _, quarantined := w.Procs[0].Module.CIDs().Counts(); return quarantined == 0 })
}

func TestSweep_NetworkFails_ReceivesEnd(t *testing.T) {
	defer cm.SetDoubtSteps(1)()
	net := mtltest.NewMemory(mtltest.Options{})
	w := pmltest.OpenWorld(t, over(net), 3)
	c := w.Comms(t, cid.PolicyAgree)
	dies(w, c, nil)
	wild, known := start(t)(recvInto(c[0], pml.AnySource, 1)), start(t)(recvInto(c[0], 2, 1))
	net.Fail(0, errors.New("connection reset"))
	for what, r := range map[string]started{"from any": wild, "from rank 2": known} {
		if _, err := r.wait(t); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestSweep_ReceiveIsCanceledWhileItIsWithdrawn_Ends covers cancellations by the user in each state.
func TestSweep_ReceiveIsCanceledWhileItIsWithdrawn_Ends(t *testing.T) {
	w := pmltest.OpenWorld(t, stack(mtltest.Options{Faults: mtltest.Faults{Polls: 50}}), 3)
	c := w.Comms(t, cid.PolicyAgree)
	var all []started
	for range 3 {
		all = append(all, start(t)(recvInto(c[0], pml.AnySource, 1)))
	}
	dies(w, c, nil)
	all = append(all, start(t)(recvInto(c[0], pml.AnySource, 1)), start(t)(recvInto(c[0], 2, 1)))
	for _, i := range []int{0, 3} {
		if err := all[i].r.Cancel(all[i].gen); err != nil {
			t.Fatal(err)
		}
		if st, err := all[i].wait(t); err != nil || !st.Canceled {
			t.Errorf("receive %d: %+v, %v", i, st, err)
		}
	}
	for _, i := range []int{1, 2, 4} {
		send(t, c[2], 0, 1, "message")
		if st, err := all[i].wait(t); err != nil || st.Source != 2 {
			t.Errorf("receive %d: %+v, %v", i, st, err)
		}
	}
}
