package trial

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
)

// messageLengths are lengths, in bytes, for the different protocols of providers: within a packet, in one or several buffers, and directly from
// the sender's memory.
var messageLengths = []int{6, 12 << 10, 64 << 10, maxLength}

const maxLength = 1 << 20

type step struct {
	name string
	run  func()
}

func (t *tester) steps() []step {
	return []step{
		{"a short message", func() { t.exchange(8, mtl.Standard) }},
		{"a longer message", func() { t.exchange(t.limited(64<<10), mtl.Standard) }},
		{"messages from and to memory whose pages have changed", t.checkChangedPages},
		{"a synchronous message", func() { t.exchange(8, mtl.Synchronous) }},
		{"messages that differ in one bit of id, source, endpoint or tag", t.checkBits},
		{"a message that is too long for its receive", t.checkTruncation},
		{"a message after others that wait", t.checkUnexpected},
		{"cancel", func() { t.cancel(t.receive(t.anyEnvelope(), make([]byte, 8))) }},
		{"probe and claim", t.checkProbe},
		{"claimed messages and one that overtakes them", t.checkClaims},
		{t.orderStepName() + ", posted before their messages", func() { t.checkOrder(true) }},
		{t.orderStepName() + ", posted after their messages", func() { t.checkOrder(false) }},
		{"a control message", t.checkControl},
		{"the last completions", func() { t.pollUntil(t.m.Idle) }},
	}
}

// maxEnvelope returns an envelope with all bits of the layout set.
func (t *tester) maxEnvelope() mtl.Envelope {
	c := t.m.Caps()
	return mtl.Envelope{CID: uint32(1<<c.CIDBits - 1), Source: int32(1<<c.SourceBits - 1), Tag: int32(1<<c.TagBits - 1), Endpoint: uint16(1<<c.EndpointBits - 1)}
}

// anyEnvelope matches all messages with the largest id.
func (t *tester) anyEnvelope() mtl.Envelope {
	return mtl.Envelope{CID: t.maxEnvelope().CID, Source: mtl.AnySource, Tag: mtl.AnyTag}
}

// exchange sends a message into a receive with wildcards. An older receive with another tag must not match.
func (t *tester) exchange(n int, mode mtl.Mode) {
	e, sent, got := t.maxEnvelope(), bytes.Repeat([]byte{0xa5}, n), make([]byte, n)
	low := e
	low.Tag--
	other := t.receive(low, nil)
	receive := t.receive(t.anyEnvelope(), got)
	t.awaitOps(receive, t.send(e, sent, mode))
	if receive.Source != e.Source || receive.Tag != e.Tag || receive.Bytes != int64(n) || !bytes.Equal(got, sent) {
		t.failf("source %d, tag %d, %d bytes were sent, and %d, %d, %d arrived", e.Source, e.Tag, n, receive.Source, receive.Tag, receive.Bytes)
	}
	if other.isOver {
		t.failf("it met a receive with another tag")
	}
	t.cancel(other)
}

func (t *tester) checkTruncation() {
	for _, n := range []int{16, t.limited(maxLength)} {
		for _, room := range []int{n / 2, 0} {
			sent, got := bytes.Repeat([]byte{1}, n), make([]byte, n)
			receive := t.receive(t.maxEnvelope(), got[:room])
			send := t.send(t.maxEnvelope(), sent, mtl.Standard)
			t.pollUntil(func() bool { return receive.isOver && send.isOver })
			switch {
			case !errors.Is(receive.Err, framework.ErrTruncate):
				t.failf("%d bytes into %d: the receive says %v", n, room, receive.Err)
			case !bytes.Equal(got[:room], sent[:room]):
				t.failf("%d bytes into %d: those arrived changed", n, room)
			case !bytes.Equal(got[room:], make([]byte, n-room)):
				t.failf("%d bytes into %d: it wrote beyond the buffer", n, room)
			}
		}
	}
}

// limited returns n, or MaxMessage if that is less.
func (t *tester) limited(n int) int { return int(min(int64(n), t.m.Caps().MaxMessage)) }

// checkUnexpected sends messages without receives, followed by one that must overtake them.
func (t *tester) checkUnexpected() {
	const many = 32
	e := t.maxEnvelope()
	each := func(i int) mtl.Envelope { return mtl.Envelope{CID: e.CID, Source: e.Source, Tag: int32(i)} }
	last := t.receive(each(many), nil)
	var all []*testOp
	for i := range many + 1 {
		all = append(all, t.send(each(i), nil, mtl.Standard))
	}
	t.awaitOps(last)
	for i := range many {
		all = append(all, t.receive(each(i), nil))
	}
	t.awaitOps(all...)
}

func (t *tester) checkProbe() {
	e := t.maxEnvelope()
	if t.probeOnce(false).Found {
		t.failf("it found a message where there is none")
	}
	send := t.send(e, []byte("probed"), mtl.Standard)
	seen, claimed := t.probeUntilFound(false), t.probeUntilFound(true)
	for _, p := range []*testOp{seen, claimed} {
		if p.Source != e.Source || p.Tag != e.Tag || p.Bytes != 6 {
			t.failf("source %d, tag %d, 6 bytes were sent, and it found %d, %d, %d", e.Source, e.Tag, p.Source, p.Tag, p.Bytes)
		}
	}
	got := make([]byte, 6)
	t.receiveClaimed(claimed, got)
	if t.awaitOps(claimed, send); string(got) != "probed" {
		t.failf("the claimed message arrived as %q", got)
	}
}

// checkClaims sends three messages of each length. Two are claimed. Then the third is received, followed by the claimed ones in reverse
// order.
func (t *tester) checkClaims() {
	for _, n := range messageLengths {
		n := t.limited(n)
		contents := func(i int) []byte { return bytes.Repeat([]byte{byte(i + 1)}, n) }
		var sends []*testOp
		for i := range 3 {
			sends = append(sends, t.send(t.maxEnvelope(), contents(i), mtl.Standard))
		}
		claimed := []*testOp{t.probeUntilFound(true), t.probeUntilFound(true)}
		check := func(i int, o *testOp, got []byte) {
			if t.awaitOps(o); !bytes.Equal(got, contents(i)) {
				t.failf("message %d of %d bytes arrived changed", i+1, n)
			}
		}
		got := make([]byte, n)
		check(2, t.receive(t.maxEnvelope(), got), got)
		for i, p := range slices.Backward(claimed) {
			got := make([]byte, n)
			t.receiveClaimed(p, got)
			check(i, p, got)
		}
		t.awaitOps(sends...)
	}
}

// numberedOp is the receive or the send of the message with a number.
type numberedOp struct {
	*testOp
	buf []byte
}

func number(i int) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(i)) }

// receiveNext posts the next receive of all.
func (t *tester) receiveNext(all []numberedOp, e mtl.Envelope) []numberedOp {
	buf := number(-1)
	return append(all, numberedOp{t.receive(e, buf), buf})
}

// checkMatches polls until each receive has the message with its number. last is a receive of a message that was sent behind all of them. A receive
// without a message fails MatchTimeout after its end.
func (t *tester) checkMatches(all []numberedOp, last *testOp) {
	var patience *Patience
	t.pollUntil(func() bool {
		waiting := -1
		for i, r := range all {
			switch {
			case !r.isOver:
				waiting = i
			case r.Err != nil:
				t.firstErr = r.Err
			case !bytes.Equal(r.buf, number(i)):
				t.failf("receive %d of %d got message %d", i+1, len(all), int64(binary.LittleEndian.Uint64(r.buf))+1)
			}
		}
		if waiting < 0 || t.firstErr != nil {
			return true
		}
		if last.isOver && patience == nil {
			patience = NewPatience(t.MatchTimeout)
		}
		if patience != nil && patience.Over() {
			t.failf("receive %d of %d got no message", waiting+1, len(all))
		}
		return false
	})
}

// checkBits posts a receive for each bit of id, source, endpoint and tag, behind one with no bit set.
func (t *tester) checkBits() {
	c := t.m.Caps()
	at := []mtl.Envelope{{}}
	for i := range c.CIDBits {
		at = append(at, mtl.Envelope{CID: 1 << i})
	}
	for i := range c.SourceBits {
		e := mtl.Envelope{Source: 1 << i}
		if t.HasSourceData { // The source is not matched.
			e.CID, e.Tag = 1<<c.CIDBits-1, int32(i)
		}
		at = append(at, e)
	}
	for i := range c.EndpointBits {
		at = append(at, mtl.Envelope{Endpoint: 1 << i})
	}
	for i := range c.TagBits {
		at = append(at, mtl.Envelope{Tag: 1 << i})
	}
	var all []numberedOp
	var sends []*testOp
	for _, e := range at {
		all = t.receiveNext(all, e)
	}
	last := t.receive(t.maxEnvelope(), nil)
	for i := range at {
		k := (i + 1) % len(at) // The envelope without bits is last.
		sends = append(sends, t.send(at[k], number(k), mtl.Standard))
	}
	sends = append(sends, t.send(t.maxEnvelope(), nil, mtl.Standard))
	t.checkMatches(all, last)
	t.awaitOps(append(sends, last)...)
	for i, r := range all {
		t.awaitOps(r.testOp)
		if e := at[i]; r.Source != e.Source || r.Tag != e.Tag {
			t.failf("source %d, tag %d were sent, and %d, %d arrived", e.Source, e.Tag, r.Source, r.Tag)
		}
	}
}

// orderReceives is the number of receives of checkOrder.
const orderReceives = 64

func (t *tester) orderStepName() string {
	if t.HasSourceData {
		return "receives with and without an address, in order"
	}
	return "receives from one and from any source, in order"
}

// checkOrder receives messages from one and from any source, with one and with any tag, posted before or after the sends. All receives match all
// messages, so that only the order decides.
func (t *tester) checkOrder(before bool) {
	e := t.maxEnvelope()
	behind := e
	behind.CID--
	var all []numberedOp
	post := func() {
		for i := range orderReceives {
			r := e
			if i%3 == 1 { // 3 and 2: the tags differ among those of one kind
				r.Source = mtl.AnySource
			}
			if i%2 == 1 {
				r.Tag = mtl.AnyTag
			}
			all = t.receiveNext(all, r)
		}
	}
	if before {
		post()
	}
	var sends []*testOp
	for i := range orderReceives {
		sends = append(sends, t.send(e, number(i), mtl.Standard))
	}
	last := t.receive(behind, nil)
	sends = append(sends, t.send(behind, nil, mtl.Standard))
	if !before {
		t.awaitOps(last)
		post()
	}
	t.checkMatches(all, last)
	t.awaitOps(append(sends, last)...)
}

// checkChangedPages sends a large message twice between the same addresses. In between it replaces the pages there without the C library, as Go's runtime
// does. A provider with a stale registration would transfer the old pages.
func (t *tester) checkChangedPages() {
	n := t.limited(maxLength)
	memory, err := unix.Mmap(-1, 0, 2*n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.failf("memory: %v", err)
		return
	}
	for i := range 2 {
		sent, got := memory[:n], memory[n:]
		for k := range sent {
			sent[k] = byte(i + 1)
		}
		receive := t.receive(t.maxEnvelope(), got)
		t.awaitOps(receive, t.send(t.maxEnvelope(), sent, mtl.Standard))
		if t.firstErr == nil && !bytes.Equal(sent, got) {
			t.failf("message %d arrived with other contents", i+1)
		}
		if t.firstErr != nil {
			return // The provider may still use the memory.
		}
		if err := unix.Madvise(memory, unix.MADV_DONTNEED); err != nil {
			t.failf("madvise: %v", err)
		}
	}
	unix.Munmap(memory)
}

func (t *tester) checkControl() {
	send := t.startOp(func(op *mtl.Op) (bool, error) { return t.m.SendControl(op, t.selfEndpoint, []byte("control")) })
	t.pollUntil(func() bool { return len(t.controlMessages) > 0 && send.isOver })
	if t.firstErr == nil && string(t.controlMessages[0]) != "control" {
		t.failf("%q arrived", t.controlMessages[0])
	}
}
