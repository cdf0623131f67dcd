package ofi

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
)

// tester is the protocol above a module while it is tested: the process sends to
// itself.
type tester struct {
	m       *module
	self    mtl.Endpoint
	givenUp func() bool
	heard   [][]byte
}

func (t *tester) Control(data []byte) { t.heard = append(t.heard, bytes.Clone(data)) }

func (t *tester) Endpoint(uint32, int) (mtl.Endpoint, bool) { return t.self, true }

// trial is one operation of the test.
type trial struct {
	mtl.Op
	over bool
}

func newTrial() *trial {
	t := new(trial)
	t.Owner = t
	return t
}

func (t *trial) Done(*mtl.Op) { t.over = true }

// errGivenUp ends a test whose time is over.
var errGivenUp = errors.New("nothing came within mtl.ofi.selftest_timeout")

// until polls until cond holds.
func (t *tester) until(cond func() bool) error {
	for !cond() {
		if t.givenUp() {
			return errGivenUp
		}
		if t.m.Poll() == 0 {
			runtime.Gosched()
		}
		if t.m.broken != nil {
			return t.m.broken
		}
	}
	return nil
}

// longer is a length, in bytes, that providers transfer in segments, if in any case.
const longer = 64 << 10

// selfTest checks that what m needs of its provider works: delivery with all bits
// that are matched, short and long, probe, claim, cancel, synchronous sends, and
// control messages. It returns what does not work. A provider that loses events
// has it wait until givenUp.
func selfTest(m *module, givenUp func() bool) error {
	t := &tester{m: m, givenUp: givenUp}
	upcall := m.env.Upcall
	m.env.Upcall = t
	defer func() { m.env.Upcall = upcall }()
	var err error
	t.self, err = m.Connect(framework.Peer{Life: m.env.Self, Proc: m.env.Identity.Proc, Blob: m.blob})
	if err != nil {
		return err
	}
	for _, step := range []struct {
		name string
		run  func() error
	}{
		{"a short message", func() error { return t.exchange(8, mtl.Standard) }},
		{"a longer message", func() error { return t.exchange(longer, mtl.Standard) }},
		{"a synchronous message", func() error { return t.exchange(8, mtl.Synchronous) }},
		{"a message that is too long for its receive", t.truncate},
		{"a message behind others that wait", t.behind},
		{"cancel", t.cancel},
		{"probe and claim", t.probe},
		{"claimed messages and one that overtakes them", t.claims},
		{"a control message", t.control},
		{"the last completions", func() error { return t.until(m.Idle) }},
	} {
		if err := step.run(); err != nil {
			return fmt.Errorf("self-test: %s: %w", step.name, err)
		}
	}
	return nil
}

// highest is an envelope that uses every bit of the layout.
func (t *tester) highest() mtl.Envelope {
	c := t.m.caps
	return mtl.Envelope{CID: uint32(1<<c.CIDBits - 1), Source: int32(1<<c.SourceBits - 1), Tag: int32(1<<c.TagBits - 1)}
}

// exchange sends a message to a receive that takes any, past one that must not
// take it.
func (t *tester) exchange(n int, mode mtl.Mode) error {
	e := t.highest()
	sent := bytes.Repeat([]byte{0xa5}, n)
	got := make([]byte, n)
	receive, other, send := newTrial(), newTrial(), newTrial()
	low := e
	low.Tag--
	if err := t.m.Recv(&other.Op, t.self, low, nil); err != nil {
		return err
	}
	if err := t.m.Recv(&receive.Op, 0, mtl.Envelope{CID: e.CID, Source: mtl.AnySource, Tag: mtl.AnyTag}, got); err != nil {
		return err
	}
	done, err := t.m.Send(&send.Op, t.self, e, sent, mode)
	if err != nil {
		return err
	}
	if err := t.until(func() bool { return receive.over && (done || send.over) }); err != nil {
		return err
	}
	switch {
	case receive.Err != nil:
		return receive.Err
	case !done && send.Err != nil:
		return send.Err
	case receive.Source != e.Source || receive.Tag != e.Tag || receive.Bytes != int64(n) || !bytes.Equal(got, sent):
		return fmt.Errorf("source %d, tag %d, %d bytes were sent, and %d, %d, %d arrived", e.Source, e.Tag, n, receive.Source, receive.Tag, receive.Bytes)
	case other.over:
		return errors.New("it met a receive with another tag")
	}
	t.m.Cancel(&other.Op)
	if err := t.until(func() bool { return other.over }); err != nil {
		return err
	}
	if !other.Canceled {
		return fmt.Errorf("cancel of a receive that nothing matches: %v", other.Err)
	}
	return nil
}

func (t *tester) truncate() error {
	e := t.highest()
	got := make([]byte, 16)
	receive, send := newTrial(), newTrial()
	if err := t.m.Recv(&receive.Op, t.self, e, got[:8]); err != nil {
		return err
	}
	done, err := t.m.Send(&send.Op, t.self, e, bytes.Repeat([]byte{1}, 16), mtl.Standard)
	if err != nil {
		return err
	}
	if err := t.until(func() bool { return receive.over && (done || send.over) }); err != nil {
		return err
	}
	if !errors.Is(receive.Err, framework.ErrTruncate) {
		return fmt.Errorf("the receive says %v", receive.Err)
	}
	if !bytes.Equal(got[8:], make([]byte, 8)) {
		return errors.New("it wrote beyond the buffer")
	}
	return nil
}

// behind sends messages that nobody receives yet, and one that must get past them.
func (t *tester) behind() error {
	const many = 32
	ops := make([]*trial, 2*(many+1)) // receives, then sends
	e := t.highest()
	for i := range ops {
		ops[i] = newTrial()
	}
	each := func(i int) mtl.Envelope { return mtl.Envelope{CID: e.CID, Source: e.Source, Tag: int32(i)} }
	if err := t.m.Recv(&ops[many].Op, t.self, each(many), nil); err != nil {
		return err
	}
	for i := range many + 1 {
		done, err := t.m.Send(&ops[many+1+i].Op, t.self, each(i), nil, mtl.Standard)
		if err != nil {
			return err
		}
		ops[many+1+i].over = done
	}
	if err := t.until(func() bool { return ops[many].over }); err != nil {
		return err
	}
	for i := range many {
		if err := t.m.Recv(&ops[i].Op, t.self, each(i), nil); err != nil {
			return err
		}
	}
	for _, o := range ops {
		if err := t.until(func() bool { return o.over }); err != nil {
			return err
		}
		if o.Err != nil {
			return o.Err
		}
	}
	return nil
}

func (t *tester) cancel() error {
	receive := newTrial()
	if err := t.m.Recv(&receive.Op, 0, mtl.Envelope{CID: 1, Source: mtl.AnySource, Tag: mtl.AnyTag}, make([]byte, 8)); err != nil {
		return err
	}
	t.m.Cancel(&receive.Op)
	if err := t.until(func() bool { return receive.over }); err != nil {
		return err
	}
	if !receive.Canceled {
		return fmt.Errorf("the receive was not canceled: %v", receive.Err)
	}
	return nil
}

// look probes once for any message with the highest id.
func (t *tester) look(claim bool) (*trial, error) {
	p := newTrial()
	any := mtl.Envelope{CID: t.highest().CID, Source: mtl.AnySource, Tag: mtl.AnyTag}
	if err := t.m.Probe(&p.Op, 0, any, claim); err != nil {
		return nil, err
	}
	if err := t.until(func() bool { return p.over }); err != nil {
		return nil, err
	}
	return p, p.Err
}

// find looks until it has found one.
func (t *tester) find(claim bool) (p *trial, err error) {
	for err == nil && (p == nil || !p.Found) {
		if t.givenUp() {
			return nil, errGivenUp
		}
		p, err = t.look(claim)
	}
	return p, err
}

func (t *tester) probe() error {
	e := t.highest()
	p, err := t.look(false)
	if err != nil {
		return err
	}
	if p.Found {
		return errors.New("it found a message where there is none")
	}
	send := newTrial()
	done, err := t.m.Send(&send.Op, t.self, e, []byte("probed"), mtl.Standard)
	if err != nil {
		return err
	}
	for _, claim := range []bool{false, true} {
		if p, err = t.find(claim); err != nil {
			return err
		}
		if p.Source != e.Source || p.Tag != e.Tag || p.Bytes != 6 {
			return fmt.Errorf("source %d, tag %d, 6 bytes were sent, and it found %d, %d, %d", e.Source, e.Tag, p.Source, p.Tag, p.Bytes)
		}
	}
	got := make([]byte, 6)
	p.over = false
	if err := t.m.RecvClaimed(&p.Op, got); err != nil {
		return err
	}
	if err := t.until(func() bool { return p.over && (done || send.over) }); err != nil {
		return err
	}
	if p.Err != nil || string(got) != "probed" {
		return fmt.Errorf("the claimed message arrived as %q: %v", got, p.Err)
	}
	return nil
}

// claims sends three messages. Two are claimed, then the third is received, then the
// claimed ones are, the second first.
func (t *tester) claims() error {
	e := t.highest()
	var ops, sends [3]*trial // of ops, the first two are claims
	var got [3][]byte
	contents := func(i int) []byte { return bytes.Repeat([]byte{byte(i + 1)}, longer) }
	for i := range sends {
		sends[i], got[i] = newTrial(), make([]byte, longer)
		done, err := t.m.Send(&sends[i].Op, t.self, e, contents(i), mtl.Standard)
		if err != nil {
			return err
		}
		sends[i].over = done
	}
	for i := range 2 {
		var err error
		if ops[i], err = t.find(true); err != nil {
			return err
		}
	}
	ops[2] = newTrial()
	for i := 2; i >= 0; i-- {
		var err error
		if ops[i].over = false; i == 2 {
			err = t.m.Recv(&ops[i].Op, t.self, e, got[i])
		} else {
			err = t.m.RecvClaimed(&ops[i].Op, got[i])
		}
		if err != nil {
			return err
		}
		if err := t.until(func() bool { return ops[i].over }); err != nil {
			return err
		}
		if ops[i].Err != nil {
			return fmt.Errorf("message %d of %d bytes: %w", i+1, longer, ops[i].Err)
		}
		if !bytes.Equal(got[i], contents(i)) {
			return fmt.Errorf("message %d of %d bytes arrived changed", i+1, longer)
		}
	}
	for _, s := range sends {
		if err := t.until(func() bool { return s.over }); err != nil {
			return err
		}
		if s.Err != nil {
			return s.Err
		}
	}
	return nil
}

func (t *tester) control() error {
	send := newTrial()
	done, err := t.m.SendControl(&send.Op, t.self, []byte("control"))
	if err != nil {
		return err
	}
	if err := t.until(func() bool { return len(t.heard) > 0 && (done || send.over) }); err != nil {
		return err
	}
	if string(t.heard[0]) != "control" {
		return fmt.Errorf("%q arrived", t.heard[0])
	}
	return nil
}
