package trial

import (
	"bytes"
	"fmt"
	"runtime"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
)

// A Test is what Run needs.
type Test struct {
	Module mtl.Module
	Self   framework.Peer // the process itself
	// Upcall has the module call up to what it gets, and returns what it called up to before.
	Upcall func(mtl.Receiver) mtl.Receiver
	// Aside: the source of a message travels along, and is not matched.
	Aside bool
	Long  bool // it repeats what may go well by chance
	// Soon is how long what has come may take to be matched.
	Soon time.Duration
	// GivenUp returns why the test has to end, or nil: its time is over, or the module has failed.
	GivenUp func() error
}

// tester is the protocol above a module while it is tested: the process sends to
// itself. The first error stays, and lets all that comes after it go by.
type tester struct {
	Test
	m     mtl.Module
	self  mtl.Endpoint
	heard [][]byte
	err   error
}

func (t *tester) Control(data []byte) { t.heard = append(t.heard, bytes.Clone(data)) }

func (t *tester) Endpoint(uint32, int) (mtl.Endpoint, bool) { return t.self, true }

// trial is one operation of the test.
type trial struct {
	mtl.Op
	over bool
}

func (t *trial) Done(*mtl.Op) { t.over = true }

// longTimes is how many times a long test repeats what may go well by chance.
const longTimes = 8

// Run checks that what a module needs of its library works: delivery with every bit that is
// matched, in order, of all lengths, truncated, from memory whose pages changed, past
// claimed messages; and control messages. It returns what does not work. A library that
// loses events has it wait until GivenUp.
func (s Test) Run() error {
	t := &tester{Test: s, m: s.Module}
	times := 1
	if s.Long {
		times = longTimes
	}
	before := s.Upcall(t)
	defer s.Upcall(before)
	var err error
	if t.self, err = t.m.Connect(s.Self); err != nil {
		return err
	}
	for _, step := range t.steps() {
		for range times {
			if step.run(); t.err != nil {
				return fmt.Errorf("self-test: %s: %w", step.name, t.err)
			}
		}
	}
	return nil
}

func (t *tester) failf(format string, args ...any) {
	if t.err == nil {
		t.err = fmt.Errorf(format, args...)
	}
}

// until polls until cond holds.
func (t *tester) until(cond func() bool) {
	for t.err == nil && !cond() {
		if t.err = t.GivenUp(); t.err != nil {
			return
		}
		if t.m.Poll() == 0 {
			runtime.Gosched()
		}
	}
}

// wait waits for the end of all trials, or for the first failure, which becomes the tester's error.
func (t *tester) wait(trials ...*trial) {
	for _, o := range trials {
		if t.until(func() bool { return o.over || firstError(trials) != nil }); t.err == nil {
			t.err = firstError(trials)
		}
	}
}

func firstError(trials []*trial) error {
	for _, o := range trials {
		if o.over && o.Err != nil {
			return o.Err
		}
	}
	return nil
}

// start begins an operation; begin says whether that ends it.
func (t *tester) start(begin func(*mtl.Op) (done bool, err error)) *trial {
	o := new(trial)
	o.Owner = o
	if t.err == nil {
		o.over, t.err = begin(&o.Op)
	}
	return o
}

func (t *tester) send(e mtl.Envelope, buf []byte, mode mtl.Mode) *trial {
	return t.start(func(op *mtl.Op) (bool, error) { return t.m.Send(op, t.self, e, buf, mode) })
}

func (t *tester) receive(e mtl.Envelope, buf []byte) *trial {
	return t.start(func(op *mtl.Op) (bool, error) { return false, t.m.Recv(op, t.self, e, buf) })
}

// receiveClaimed receives what p has claimed.
func (t *tester) receiveClaimed(p *trial, buf []byte) {
	if p.over = false; t.err == nil {
		t.err = t.m.RecvClaimed(&p.Op, buf)
	}
}

// look probes once for any message.
func (t *tester) look(claim bool) *trial {
	p := t.start(func(op *mtl.Op) (bool, error) { return false, t.m.Probe(op, t.self, t.any(), claim) })
	t.wait(p)
	return p
}

// find looks until it has found one.
func (t *tester) find(claim bool) *trial {
	p := new(trial)
	t.until(func() bool {
		p = t.look(claim)
		return p.Found
	})
	return p
}

// cancel cancels a receive that nothing matches.
func (t *tester) cancel(receive *trial) {
	if t.err == nil {
		t.m.Cancel(&receive.Op)
	}
	t.until(func() bool { return receive.over })
	if !receive.Canceled {
		t.failf("a receive that nothing matches was not canceled: %v", receive.Err)
	}
}
