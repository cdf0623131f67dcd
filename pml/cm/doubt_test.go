package cm_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/cm"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// failed counts the doubtful requests of a process.
func failed(m pml.Module) (n int) {
	for _, c := range pmltest.Inspect(m).Comms {
		for _, p := range append(c.Posted, c.Sends...) {
			if p.State == "failed" {
				n++
			}
		}
	}
	return n
}

// wantFailureOf1 checks that err is the failure of rank 1.
func wantFailureOf1(t *testing.T, what string, err error) {
	t.Helper()
	var failed *framework.ProcFailedError
	if !errors.As(err, &failed) || len(failed.Ranks) != 1 || failed.Ranks[0] != 1 {
		t.Errorf("%s: %v, want the failure of rank 1", what, err)
	}
}

// TestDoubt_NetworkFailsBeforeBootstrapReport_ReturnsProcFailed checks that operations end with the failure of
// the process, including receives from any source.
func TestDoubt_NetworkFailsBeforeBootstrapReport_ReturnsProcFailed(t *testing.T) {
	broken := errors.New("connection reset")
	for _, death := range []bool{true, false} {
		t.Run(fmt.Sprint("death ", death), func(t *testing.T) {
			defer cm.SetDoubtSteps(map[bool]int{true: math.MaxInt, false: 80}[death])()
			net := mtltest.NewMemory(mtltest.Options{})
			w := pmltest.OpenWorld(t, over(net), 2)
			c := w.Comms(t, cid.PolicyAgree)
			meet(t, c, 1)
			specific := start(t)(recvInto(c[0], 1, 3))
			wild := start(t)(recvInto(c[0], pml.AnySource, 3))
			out := start(t)(isend(c[0], 1, 3, pml.Synchronous))
			net.Fail(0, broken)
			until(t, "the network's word", func() bool { return failed(w.Procs[0].Module) == 3 })
			if death {
				w.Procs[0].Module.PeerChanged(framework.FailedEvent(w.Group()[1].Incarnation, "killed"))
			}
			_, known := specific.wait(t)
			_, any := wild.wait(t)
			_, sent := out.wait(t)
			if !death {
				for _, err := range []error{known, any, sent} {
					wantErr(t, "without the bootstrap's word", err, broken)
				}
				return
			}
			wantFailureOf1(t, "receive", known)
			wantFailureOf1(t, "send", sent)
			wantFailureOf1(t, "receive from any source", any)
		})
	}
}

// TestRecvClaimed_SenderHasFailed_ReturnsProcFailed covers a claimed message. The bootstrap has reported the
// failure before, and no second report follows.
func TestRecvClaimed_SenderHasFailed_ReturnsProcFailed(t *testing.T) {
	defer cm.SetDoubtSteps(math.MaxInt)()
	net := mtltest.NewMemory(mtltest.Options{})
	w := pmltest.OpenWorld(t, over(net), 2)
	c := w.Comms(t, cid.PolicyAgree)
	send(t, c[1], 0, 1, "message")
	k, _, err := c[0].Mprobe(t.Context(), pml.AnySource, 1, pml.PointToPoint)
	if err != nil {
		t.Fatal(err)
	}
	w.Procs[0].Module.PeerChanged(framework.FailedEvent(w.Group()[1].Incarnation, "killed"))
	net.Fail(0, errors.New("connection reset"))
	r := start(t)(k.Irecv(pml.Buffer{Bytes: make([]byte, 8)}))
	_, err = r.wait(t)
	wantFailureOf1(t, "a claimed message", err)
}

// deaf is an in-memory network that fails control messages while it is deaf.
type deaf struct {
	mtl.Component
	is atomic.Bool
}

var errDeaf = errors.New("connection reset")

func (d *deaf) Open(ctx context.Context, env mtl.Env) (mtl.Module, error) {
	m, err := d.Component.Open(ctx, env)
	return &deafModule{Module: m, d: d}, err
}

type deafModule struct {
	mtl.Module
	d   *deaf
	ops []*mtl.Op
}

func (m *deafModule) Interval() time.Duration { return 100 * time.Microsecond }

func (m *deafModule) SendControl(op *mtl.Op, to mtl.Endpoint, data []byte) (bool, error) {
	if !m.d.is.Load() {
		return m.Module.SendControl(op, to, data)
	}
	m.ops = append(m.ops, op)
	return false, nil
}

func (m *deafModule) Poll() int {
	n := m.Module.Poll()
	ops := m.ops
	m.ops = nil
	for _, op := range ops {
		op.Result = mtl.Result{Err: &framework.TransportError{Component: "mtl memory", Op: "send", Err: errDeaf}}
		op.Owner.Done(op)
	}
	return n + len(ops)
}

// worldOfDeaf returns two processes and a communicator with lazy ids.
func worldOfDeaf(t *testing.T) (*deaf, *pmltest.World, []pml.Comm) {
	net := &deaf{Component: mtltest.NewMemory(mtltest.Options{}).Component()}
	net.is.Store(true)
	w := pmltest.OpenWorld(t, pmltest.Stack{PML: cm.Component(), MTL: net}, 2)
	return net, w, w.Comms(t, cid.PolicyLazy)
}

// TestDoubt_NetworkFailsRequest_WaitsForBootstrapReport checks that sends which wait for the reply end with
// the failure of the process, once the bootstrap reports it.
func TestDoubt_NetworkFailsRequest_WaitsForBootstrapReport(t *testing.T) {
	defer cm.SetDoubtSteps(math.MaxInt)()
	_, w, c := worldOfDeaf(t)
	m := w.Procs[0].Module
	wild := start(t)(recvInto(c[0], pml.AnySource, 1))
	asked := start(t)(isend(c[0], 1, 1, pml.Standard))
	until(t, "the network's word", func() bool { return failed(m) == 1 })
	if asked.r.Done() || wild.r.Done() {
		t.Error("the process counts as failed")
	}
	m.PeerChanged(framework.FailedEvent(w.Group()[1].Incarnation, "killed"))
	c[0].Suspend(pml.PointToPoint, framework.ErrProcFailedPending)
	_, err := asked.wait(t)
	wantFailureOf1(t, "a send that has asked", err)
	_, err = wild.wait(t)
	wantErr(t, "a receive from any source", err, framework.ErrProcFailedPending)
	_, err = start(t)(isend(c[0], 1, 1, pml.Standard)).wait(t)
	wantFailureOf1(t, "a new send", err)
}

// TestSend_NetworkFailedRequest_IsRepeated checks that sends which wait for the reply fail,
// and that the next send repeats the request.
func TestSend_NetworkFailedRequest_IsRepeated(t *testing.T) {
	defer cm.SetDoubtSteps(1)()
	net, _, c := worldOfDeaf(t)
	_, err := start(t)(isend(c[0], 1, 1, pml.Standard)).wait(t)
	wantErr(t, "a send that has asked in vain", err, errDeaf)
	net.is.Store(false)
	sent := start(t)(isend(c[0], 1, 1, pml.Standard))
	receive(t, c[1], 0, 1, "message")
	if _, err := sent.wait(t); err != nil {
		t.Errorf("the next send: %v", err)
	}
}

// TestPeerFailed_PeerWasUnreachable_ReplacesError checks that a failure report replaces the error of an
// unreachable process.
func TestPeerFailed_PeerWasUnreachable_ReplacesError(t *testing.T) {
	w := pmltest.OpenWorld(t, stack(mtltest.Options{}), 2)
	m := w.Procs[0].Module
	if err := m.Learn(w.Reborn(1, 7), nil); err != nil { // Without an address.
		t.Fatal(err)
	}
	c := join(t, w, w.NextID(), 0)
	_, err := start(t)(isend(c, 1, 1, pml.Standard)).wait(t)
	wantErr(t, "a send", err, framework.ErrTransport)
	m.PeerChanged(framework.FailedEvent(w.Group()[1].Incarnation, "killed"))
	_, err = start(t)(isend(c, 1, 1, pml.Standard)).wait(t)
	wantFailureOf1(t, "a send after its death", err)
}
