package trial

import (
	"bytes"
	"fmt"
	"runtime"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
)

// A Test is a self-test of a module.
type Test struct {
	Module mtl.Module
	// Self is this process.
	Self framework.Peer
	// Upcall replaces the receiver of the module's upcalls, and returns the previous one.
	Upcall func(mtl.Receiver) mtl.Receiver
	// HasSourceData is set if the source of a message is not matched.
	HasSourceData bool
	// IsLong is set to repeat steps that may succeed by chance.
	IsLong bool
	// MatchTimeout is the time limit for matching a message that has arrived.
	MatchTimeout time.Duration
	// AbortReason returns the reason to end the test, such as a time limit or a failure of the module, or nil.
	AbortReason func() error
}

// tester is the protocol above a module during its test. The process sends messages to itself. After the first error all further calls have no
// effect.
type tester struct {
	Test
	m               mtl.Module
	selfEndpoint    mtl.Endpoint
	controlMessages [][]byte
	firstErr        error
}

func (t *tester) Control(data []byte) {
	t.controlMessages = append(t.controlMessages, bytes.Clone(data))
}

func (t *tester) Endpoint(uint32, int) (mtl.Endpoint, bool) { return t.selfEndpoint, true }

// testOp is one operation of the test.
type testOp struct {
	mtl.Op
	isOver bool
}

func (t *testOp) Done(*mtl.Op) { t.isOver = true }

// longRepeats is the number of repetitions of a long test.
const longRepeats = 8

// Run tests the functions of its library that a module requires: delivery with every matched bit, in order, with all lengths, with
// truncation, from memory whose pages have changed, past claimed messages, and control messages. It returns the first failure. If the library
// loses completions it blocks until AbortReason returns an error.
func (s Test) Run() error {
	t := &tester{Test: s, m: s.Module}
	times := 1
	if s.IsLong {
		times = longRepeats
	}
	before := s.Upcall(t)
	defer s.Upcall(before)
	var err error
	if t.selfEndpoint, err = t.m.Connect(s.Self); err != nil {
		return err
	}
	for _, step := range t.steps() {
		for range times {
			if step.run(); t.firstErr != nil {
				return fmt.Errorf("self-test: %s: %w", step.name, t.firstErr)
			}
		}
	}
	return nil
}

func (t *tester) failf(format string, args ...any) {
	if t.firstErr == nil {
		t.firstErr = fmt.Errorf(format, args...)
	}
}

// pollUntil polls until cond holds.
func (t *tester) pollUntil(cond func() bool) {
	for t.firstErr == nil && !cond() {
		if t.firstErr = t.AbortReason(); t.firstErr != nil {
			return
		}
		if t.m.Poll() == 0 {
			runtime.Gosched()
		}
	}
}

// awaitOps polls until all operations have ended or one has failed.
func (t *tester) awaitOps(trials ...*testOp) {
	for _, o := range trials {
		if t.pollUntil(func() bool { return o.isOver || firstError(trials) != nil }); t.firstErr == nil {
			t.firstErr = firstError(trials)
		}
	}
}

func firstError(trials []*testOp) error {
	for _, o := range trials {
		if o.isOver && o.Err != nil {
			return o.Err
		}
	}
	return nil
}

// startOp starts an operation. begin reports whether it is complete.
func (t *tester) startOp(begin func(*mtl.Op) (done bool, err error)) *testOp {
	o := new(testOp)
	o.Owner = o
	if t.firstErr == nil {
		o.isOver, t.firstErr = begin(&o.Op)
	}
	return o
}

func (t *tester) send(e mtl.Envelope, buf []byte, mode mtl.Mode) *testOp {
	return t.startOp(func(op *mtl.Op) (bool, error) { return t.m.Send(op, t.selfEndpoint, e, buf, mode) })
}

func (t *tester) receive(e mtl.Envelope, buf []byte) *testOp {
	return t.startOp(func(op *mtl.Op) (bool, error) { return false, t.m.Recv(op, t.selfEndpoint, e, buf) })
}

// receiveClaimed receives the message that p has claimed.
func (t *tester) receiveClaimed(p *testOp, buf []byte) {
	if p.isOver = false; t.firstErr == nil {
		t.firstErr = t.m.RecvClaimed(&p.Op, buf)
	}
}

// probeOnce probes for any message.
func (t *tester) probeOnce(claim bool) *testOp {
	p := t.startOp(func(op *mtl.Op) (bool, error) { return false, t.m.Probe(op, t.selfEndpoint, t.anyEnvelope(), claim) })
	t.awaitOps(p)
	return p
}

func (t *tester) probeUntilFound(claim bool) *testOp {
	p := new(testOp)
	t.pollUntil(func() bool {
		p = t.probeOnce(claim)
		return p.Found
	})
	return p
}

// cancel cancels a receive that matches no message.
func (t *tester) cancel(receive *testOp) {
	if t.firstErr == nil {
		t.m.Cancel(&receive.Op)
	}
	t.pollUntil(func() bool { return receive.isOver })
	if !receive.Canceled {
		t.failf("a receive that nothing matches was not canceled: %v", receive.Err)
	}
}
