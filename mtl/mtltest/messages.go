package mtltest

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/mtl"
)

func messageCases() claims {
	return claims{
		twoNodes("CapsArePlausibleAndFixed", (*world).capsFixed),
		twoNodes("MessagesOfEverySizeArriveWhole", (*world).everySize),
		twoNodes("UnexpectedMessagesOfEverySizeWait", (*world).unexpected),
		kittest.New("MessagesToOneselfArrive", 1, (*world).toOneself),
		twoNodes("LongerMessageIsTruncatedAndItsLengthTold", (*world).truncated),
		twoNodes("MessageAboveTheLimitIsRefusedBeforeItIsSent", (*world).tooLong),
		twoNodes("SendersBufferIsFreeWhenItIsDone", (*world).bufferIsFree),
		twoNodes("NothingRefusesForWantOfRoom", (*world).manyAtOnce),
		twoNodes("SynchronousSendWaitsForItsMatch", (*world).synchronous),
		twoNodes("SynchronousSendsOfOneTagCompleteInOrder", (*world).synchronousOrder),
		kittest.New("SynchronousMessageToAnySourceIsAnswered", 3, (*world).synchronousAny),
		twoNodes("KeptMessagesAreThoseThatCameIntoOneBuffer", (*world).kept),
		twoNodes("MessagesAllocateNothing", (*world).noAllocation),
	}
}

func (w *world) capsFixed(a, b *node) {
	caps, offer, blob := a.module.Caps(), a.module.Offer(), bytes.Clone(a.module.Blob())
	switch {
	case caps.CIDBits < 4 || caps.CIDBits > 32 || caps.SourceBits < 8 || caps.SourceBits > 31 || caps.TagBits < 15 || caps.TagBits > 31:
		w.Fatalf("implausible widths: %+v", caps)
	case caps.EndpointBits < 0 || caps.EndpointBits > 16 || caps.MatchesRank && caps.RankSetting.Param != "":
		w.Fatalf("implausible match of endpoints: %+v", caps)
	case caps.MaxMessage < 1<<20 || caps.Inject < 0 || int64(caps.Inject) > caps.MaxMessage || caps.Eager < 0 || caps.Eager > caps.MaxMessage:
		w.Fatalf("implausible sizes: %+v", caps)
	case caps.ControlLimit < mtl.MinControlLimit:
		w.Fatalf("control messages of %d bytes, and %d are needed", caps.ControlLimit, mtl.MinControlLimit)
	case offer == "" || offer != b.module.Offer():
		w.Fatalf("the offers are %q and %q", offer, b.module.Offer())
	}
	w.exchange(a, b, envelope{cid: 1, tag: 2}, pattern(1, 1000))
	if caps != a.module.Caps() || offer != a.module.Offer() || !bytes.Equal(blob, a.module.Blob()) {
		w.Fatalf("caps, offer or blob changed")
	}
}

// sizes are lengths around which modules change their protocol.
func sizes(caps mtl.Caps) []int {
	var all []int
	for _, n := range []int{0, 1, 8, 64, 128, 256, caps.Inject, 1 << 10, 4 << 10, 8 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4<<20 + 3} {
		for _, n := range []int{n - 1, n, n + 1} {
			if n >= 0 && int64(n) <= caps.MaxMessage {
				all = append(all, n)
			}
		}
	}
	return all
}

// guard returns the contents of a buffer that must not be written.
func guard(n int) []byte { return bytes.Repeat([]byte{0xee}, n) }

func (w *world) everySize(a, b *node) {
	for i, n := range sizes(a.module.Caps()) {
		buf := guard(n + 8) // The bytes behind n must not change.
		from := []*node{a, nil}[i%2]
		m := envelope{cid: 7, tag: int32(i)}
		r := b.receive(from, m, buf)
		sent := pattern(i, n)
		r.mustGet(a, m.tag, sent, a.send(b, m, sent))
		w.Same("the bytes after a message", buf[n:], guard(8))
	}
}

func (w *world) unexpected(a, b *node) {
	all := sizes(a.module.Caps())
	var sends []*operation
	for i, n := range all {
		sends = append(sends, a.send(b, envelope{cid: 7, tag: int32(i)}, pattern(i, n)))
	}
	w.drainNetwork()
	receives := make([]*operation, len(all))
	for i := range all {
		j := len(all) - 1 - i // Not in the order of arrival.
		receives[j] = b.receive(a, envelope{cid: 7, tag: int32(j)}, make([]byte, all[j]))
	}
	w.awaitSuccess(append(sends, receives...)...)
	for i, r := range receives {
		r.check(a, int32(i), pattern(i, all[i]))
	}
}

func (w *world) toOneself() {
	n := w.nodesByRank[0]
	for i, size := range []int{0, 8, 10000, 1 << 20} {
		for _, mode := range []mtl.Mode{mtl.Standard, mtl.Synchronous} {
			w.exchange(n, n, envelope{cid: 3, tag: int32(i), mode: mode}, pattern(i, size))
		}
	}
}

func (w *world) truncated(a, b *node) {
	for i, size := range []int{1, 8, 64, 1000, 1 << 20} {
		for _, early := range []bool{true, false} {
			sent, buf, room := pattern(i, size), guard(size), size/2
			m := envelope{cid: 7, tag: int32(i)}
			var r, s *operation
			if early {
				r, s = b.receive(nil, m, buf[:room]), a.send(b, m, sent)
			} else {
				s = a.send(b, m, sent)
				w.drainNetwork()
				r = b.receive(a, m, buf[:room])
			}
			w.awaitEnd(r, s)
			switch {
			case s.Err != nil:
				w.Fatalf("%d bytes: the send failed: %w", size, s.Err)
			case !errors.Is(r.Err, framework.ErrTruncate):
				w.Fatalf("%d bytes into %d: %v", size, room, r.Err)
			case r.Source != 0 || r.Tag != m.tag || r.Bytes != int64(size):
				w.Fatalf("%d bytes into %d: source %d, tag %d, %d bytes", size, room, r.Source, r.Tag, r.Bytes)
			}
			w.Same("a truncated message and the bytes after it", buf, append(sent[:room:room], guard(size-room)...))
		}
	}
}

func (w *world) tooLong(a, b *node) {
	limit := a.module.Caps().MaxMessage
	switch {
	case limit >= 1<<62:
		w.Skipf("it takes messages of any length")
	case limit > math.MaxInt32:
		w.Skipf("it takes messages of %d MiB, and this test has none that are longer", limit>>20)
	}
	_, err := a.trySend(b, envelope{cid: 1, tag: 1}, make([]byte, limit+1))
	w.Is("a message above the limit", err, mtl.ErrTooLong)
	w.exchange(a, b, envelope{cid: 1, tag: 1}, pattern(1, 8))
}

func (w *world) bufferIsFree(a, b *node) {
	for i, n := range []int{8, 300, 5000, 100000} {
		m := envelope{cid: 2, tag: int32(i)}
		buf := pattern(i, n)
		s := a.send(b, m, buf)
		// A long message may require its receive.
		for k := 0; k < 100 && !s.hasEnded(); k++ {
			w.pollAll()
		}
		if s.hasEnded() {
			clear(buf)
		}
		b.receive(a, m, make([]byte, n)).mustGet(a, m.tag, pattern(i, n), s)
	}
}

func (w *world) manyAtOnce(a, b *node) {
	const count = 5000
	m := func(i int) envelope { return envelope{cid: 4, tag: int32(i % 100)} }
	size := func(i int) int {
		if i%10 == 0 {
			return 2000
		}
		return 8
	}
	var sends, receives []*operation
	for i := range count {
		sends = append(sends, a.send(b, m(i), pattern(i, size(i))))
	}
	for i := range count {
		receives = append(receives, b.receive(a, m(i), make([]byte, 2000)))
	}
	w.awaitSuccess(append(sends, receives...)...)
	for i, r := range receives {
		r.check(a, m(i).tag, pattern(i, size(i)))
	}
}

func (w *world) synchronous(a, b *node) {
	for i, n := range []int{0, 8, 1000, 1 << 20} {
		m := envelope{cid: 5, tag: int32(i), mode: mtl.Synchronous}
		s := a.send(b, m, pattern(i, n))
		w.drainNetwork()
		if s.hasEnded() {
			w.Fatalf("%d bytes: it was over before there was a receive", n)
		}
		b.receive(a, m, make([]byte, n)).mustGet(a, m.tag, pattern(i, n), s)
	}
}

func (w *world) synchronousOrder(a, b *node) {
	m := envelope{cid: 5, tag: 9, mode: mtl.Synchronous}
	var sends []*operation
	for i := range 4 {
		sends = append(sends, a.send(b, m, pattern(i, 100)))
	}
	// A message with another tag, which is acknowledged first.
	w.exchange(a, b, envelope{cid: 5, tag: 8, mode: mtl.Synchronous}, nil)
	for i, s := range sends {
		if s.hasEnded() {
			w.Fatalf("send %d was over before its receive", i)
		}
		b.receive(a, m, make([]byte, 100)).mustGet(a, 9, pattern(i, 100), s)
	}
}

func (w *world) synchronousAny() {
	c := w.nodesByRank[2]
	for round := range 10 {
		var ops []*operation
		for _, n := range w.nodesByRank[:2] {
			ops = append(ops, n.send(c, envelope{cid: 6, tag: int32(round), mode: mtl.Synchronous}, pattern(n.rank, 50)),
				c.receive(nil, envelope{cid: 6, tag: mtl.AnyTag}, make([]byte, 50)))
		}
		w.awaitSuccess(ops...)
		if ops[1].Source+ops[3].Source != 1 {
			w.Fatalf("they came from %d and %d", ops[1].Source, ops[3].Source)
		}
	}
}

// noAllocation reuses the same operations and buffers.
func (w *world) noAllocation(a, b *node) {
	to, from := a.endpointOf(b), b.endpointOf(a)
	s, r := a.operation(), b.operation()
	e := mtl.Envelope{CID: 3, Source: 0, Tag: 4}
	ctx := w.Context()
	for _, n := range []int{8, 3000, 300000} {
		out, in := pattern(1, n), make([]byte, n)
		var failed error
		once := func() {
			s.isOver, r.isOver = false, false
			b.engine.Lock()
			err := b.module.Recv(&r.Op, from, e, in)
			b.engine.Unlock()
			a.engine.Lock()
			done, err2 := a.module.Send(&s.Op, to, e, out, mtl.Standard)
			s.isOver = done
			a.engine.Unlock()
			failed = errors.Join(failed, err, err2)
			for failed == nil && !(r.isOver && s.isOver) && ctx.Err() == nil {
				w.pollAll()
			}
		}
		for range 20 { // Connections and tables grow first.
			once()
		}
		// Less than one in ten may be due to the runtime, or to a table that still grows.
		per := testing.AllocsPerRun(200, once)
		w.Check(failed)
		if per >= 0.1 {
			w.Fatalf("%d bytes: %.2f allocations per message", n, per)
		}
	}
}

func controlCases() claims {
	return claims{
		twoNodes("ControlMessagesOfEverySizeArrive", (*world).controlSizes),
		twoNodes("ControlMessageAboveTheLimitIsRefused", (*world).controlTooLong),
		kittest.New("ControlReceivesAreNeverUsedUp", 4, (*world).controlFlood),
		twoNodes("ControlMessagesPassUnexpectedOnes", (*world).controlPasses),
	}
}

// tryControl starts a control message and returns its error.
func (n *node) tryControl(to *node, data []byte) (o *operation, err error) {
	e := n.endpointOf(to)
	o = n.operation()
	n.withLock(func() { o.isOver, err = n.module.SendControl(&o.Op, e, data) })
	return o, err
}

func (n *node) sendControl(to *node, data []byte) *operation {
	o, err := n.tryControl(to, data)
	if err != nil {
		n.w.Fatalf("control message from rank %d to rank %d: %w", n.rank, to.rank, err)
	}
	return o
}

func (w *world) controlSizes(a, b *node) {
	for n := 1; n <= a.module.Caps().ControlLimit; n++ {
		o := a.sendControl(b, pattern(n, n))
		w.untilLocked("a control message", b, func() bool { return len(b.controlMessages) == n })
		w.Same("a control message", b.controlMessages[n-1], pattern(n, n))
		w.awaitSuccess(o)
	}
}

func (w *world) controlTooLong(a, b *node) {
	for _, n := range []int{0, a.module.Caps().ControlLimit + 1} {
		_, err := a.tryControl(b, make([]byte, n))
		w.Is("a control message that is empty, or too long", err, mtl.ErrTooLong)
	}
	w.drainNetwork()
}

// controlFlood sends more messages than buffers hold, from all to all. The receivers pause in between.
func (w *world) controlFlood() {
	const each = 500
	var ops []*operation
	for i := range each {
		for _, a := range w.nodesByRank {
			for _, b := range w.nodesByRank {
				ops = append(ops, a.sendControl(b, []byte{byte(a.rank), byte(i), byte(i >> 8)}))
			}
		}
		if i%50 == 0 {
			w.pollAll(w.nodesByRank[i/50%len(w.nodesByRank)])
		}
	}
	w.awaitSuccess(ops...)
	for _, n := range w.nodesByRank {
		w.untilLocked("control messages", n, func() bool { return len(n.controlMessages) >= each*len(w.nodesByRank) })
		seen := map[string]bool{}
		for _, c := range n.controlMessages {
			if len(c) != 3 || seen[string(c)] {
				w.Fatalf("rank %d got %x, or got it twice", n.rank, c)
			}
			seen[string(c)] = true
		}
	}
}

func (w *world) controlPasses(a, b *node) {
	const count = 1000
	var ops []*operation
	for i := range count {
		ops = append(ops, a.send(b, envelope{cid: 1, tag: int32(i)}, pattern(i, 40)))
	}
	w.drainNetwork() // Behind unexpected messages.
	for i := range count {
		ops = append(ops, b.receive(a, envelope{cid: 1, tag: int32(i)}, make([]byte, 40)))
	}
	w.awaitSuccess(ops...)
}

// kept uses one buffer for several receives. Their messages arrive before the first completion is reported, or before the receives are
// posted.
func (w *world) kept(a, b *node) {
	saver, ok := framework.As[mtl.MessageSaver](b.module)
	if !ok {
		w.Skipf("the module keeps no messages")
	}
	const length, count = mtl.MaxSavedMessage - 3, 32
	b.withLock(func() { saver.SaveMessages(length) })
	b.messageSaver = saver
	buf := make([]byte, 2*length)
	for _, late := range []bool{false, true} {
		var receives, sends []*operation
		post := func() {
			for i := range count {
				receives = append(receives, b.receive(a, envelope{cid: 7, tag: int32(i)}, buf))
			}
		}
		if !late {
			post()
		}
		for i := range count {
			sends = append(sends, a.send(b, envelope{cid: 7, tag: int32(i)}, pattern(i, length)))
		}
		if late {
			w.awaitSuccess(sends...)
			post()
		}
		w.awaitSuccess(append(sends, receives...)...)
		for i, r := range receives {
			if !bytes.Equal(r.keptMessage, pattern(i, length)) {
				w.Fatalf("message %d of %d was kept as %x, want %x", i, count, r.keptMessage, pattern(i, length))
			}
		}
	}
}
