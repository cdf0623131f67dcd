package ofi

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
)

// tester is the protocol above a module while it is tested: the process sends to
// itself. The first error stays, and lets all that comes after it go by.
type tester struct {
	m       *module
	self    mtl.Endpoint
	givenUp func() bool
	heard   [][]byte
	err     error
}

func (t *tester) Control(data []byte) { t.heard = append(t.heard, bytes.Clone(data)) }

func (t *tester) Endpoint(uint32, int) (mtl.Endpoint, bool) { return t.self, true }

// trial is one operation of the test.
type trial struct {
	mtl.Op
	over bool
}

func (t *trial) Done(*mtl.Op) { t.over = true }

// errGivenUp ends a test whose time is over.
var errGivenUp = errors.New("nothing came within mtl.ofi.selftest_timeout")

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
		run  func()
	}{
		{"a short message", func() { t.exchange(8, mtl.Standard) }},
		{"a longer message", func() { t.exchange(longer, mtl.Standard) }},
		{"a synchronous message", func() { t.exchange(8, mtl.Synchronous) }},
		{"a message that is too long for its receive", t.truncate},
		{"a message behind others that wait", t.behind},
		{"cancel", func() { t.cancel(t.receive(t.any(), make([]byte, 8))) }},
		{"probe and claim", t.probe},
		{"claimed messages and one that overtakes them", t.claims},
		{"a control message", t.control},
		{"the last completions", func() { t.until(m.Idle) }},
	} {
		if step.run(); t.err != nil {
			return fmt.Errorf("self-test: %s: %w", step.name, t.err)
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
		if t.givenUp() {
			t.err = errGivenUp
			return
		}
		if t.m.Poll() == 0 {
			runtime.Gosched()
		}
		t.err = cmp.Or(t.err, t.m.broken)
	}
}

// wait waits for trials, whose errors are the tester's.
func (t *tester) wait(trials ...*trial) {
	for _, o := range trials {
		if t.until(func() bool { return o.over }); t.err == nil {
			t.err = o.Err
		}
	}
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

// highest is an envelope that uses every bit of the layout.
func (t *tester) highest() mtl.Envelope {
	c := t.m.caps
	return mtl.Envelope{CID: uint32(1<<c.CIDBits - 1), Source: int32(1<<c.SourceBits - 1), Tag: int32(1<<c.TagBits - 1)}
}

// any matches all messages with the highest id.
func (t *tester) any() mtl.Envelope {
	return mtl.Envelope{CID: t.highest().CID, Source: mtl.AnySource, Tag: mtl.AnyTag}
}

// exchange sends a message to a receive that takes any, past one that must not
// take it.
func (t *tester) exchange(n int, mode mtl.Mode) {
	e, sent, got := t.highest(), bytes.Repeat([]byte{0xa5}, n), make([]byte, n)
	low := e
	low.Tag--
	other := t.receive(low, nil)
	receive := t.receive(t.any(), got)
	t.wait(receive, t.send(e, sent, mode))
	if receive.Source != e.Source || receive.Tag != e.Tag || receive.Bytes != int64(n) || !bytes.Equal(got, sent) {
		t.failf("source %d, tag %d, %d bytes were sent, and %d, %d, %d arrived", e.Source, e.Tag, n, receive.Source, receive.Tag, receive.Bytes)
	}
	if other.over {
		t.failf("it met a receive with another tag")
	}
	t.cancel(other)
}

func (t *tester) truncate() {
	got := make([]byte, 16)
	receive := t.receive(t.highest(), got[:8])
	send := t.send(t.highest(), bytes.Repeat([]byte{1}, 16), mtl.Standard)
	t.until(func() bool { return receive.over && send.over })
	if !errors.Is(receive.Err, framework.ErrTruncate) {
		t.failf("the receive says %v", receive.Err)
	}
	if !bytes.Equal(got[8:], make([]byte, 8)) {
		t.failf("it wrote beyond the buffer")
	}
}

// behind sends messages that nobody receives yet, and one that must get past them.
func (t *tester) behind() {
	const many = 32
	e := t.highest()
	each := func(i int) mtl.Envelope { return mtl.Envelope{CID: e.CID, Source: e.Source, Tag: int32(i)} }
	last := t.receive(each(many), nil)
	var all []*trial
	for i := range many + 1 {
		all = append(all, t.send(each(i), nil, mtl.Standard))
	}
	t.wait(last)
	for i := range many {
		all = append(all, t.receive(each(i), nil))
	}
	t.wait(all...)
}

func (t *tester) probe() {
	e := t.highest()
	if t.look(false).Found {
		t.failf("it found a message where there is none")
	}
	send := t.send(e, []byte("probed"), mtl.Standard)
	seen, claimed := t.find(false), t.find(true)
	for _, p := range []*trial{seen, claimed} {
		if p.Source != e.Source || p.Tag != e.Tag || p.Bytes != 6 {
			t.failf("source %d, tag %d, 6 bytes were sent, and it found %d, %d, %d", e.Source, e.Tag, p.Source, p.Tag, p.Bytes)
		}
	}
	got := make([]byte, 6)
	t.receiveClaimed(claimed, got)
	if t.wait(claimed, send); string(got) != "probed" {
		t.failf("the claimed message arrived as %q", got)
	}
}

// claims sends three messages. Two are claimed, then the third is received, then the
// claimed ones are, the second first.
func (t *tester) claims() {
	contents := func(i int) []byte { return bytes.Repeat([]byte{byte(i + 1)}, longer) }
	var sends []*trial
	for i := range 3 {
		sends = append(sends, t.send(t.highest(), contents(i), mtl.Standard))
	}
	claimed := []*trial{t.find(true), t.find(true)}
	check := func(i int, o *trial, got []byte) {
		if t.wait(o); !bytes.Equal(got, contents(i)) {
			t.failf("message %d of %d bytes arrived changed", i+1, longer)
		}
	}
	got := make([]byte, longer)
	check(2, t.receive(t.highest(), got), got)
	for i, p := range slices.Backward(claimed) {
		got := make([]byte, longer)
		t.receiveClaimed(p, got)
		check(i, p, got)
	}
	t.wait(sends...)
}

func (t *tester) control() {
	send := t.start(func(op *mtl.Op) (bool, error) { return t.m.SendControl(op, t.self, []byte("control")) })
	t.until(func() bool { return len(t.heard) > 0 && send.over })
	if t.err == nil && string(t.heard[0]) != "control" {
		t.failf("%q arrived", t.heard[0])
	}
}
