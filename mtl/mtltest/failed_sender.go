package mtltest

import (
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/mtl"
)

func failureCases() claims {
	return claims{
		kittest.New("MessagesOfTheDeadAreReceivedWholeOrNotAtAll", 3, (*world).failedSenderUndetected),
		kittest.New("MessagesOfTheForgottenAreReceivedWholeOrNotAtAll", 3, (*world).failedSenderForgotten),
		kittest.New("MessagesOfTheDeadWaitWhileItIsConnectedAgain", 2, (*world).failedSenderReconnecting),
	}
}

// failedSenderUndetected covers a failure that only the network has detected, or that is undetected.
func (w *world) failedSenderUndetected() { w.failedSender(nil) }

func (w *world) failedSenderForgotten() { w.failedSender(errForgotten) }

// orphan is a message of a failed sender, with the operation that receives it.
type orphan struct {
	*operation
	tag         int32
	sentPayload []byte
}

// checkOrphan checks a receive that was started with err. It may fail if the message is longer than eager.
func (w *world) checkOrphan(l orphan, from *node, eager int64, err error) {
	if err == nil {
		w.awaitEnd(l.operation)
		err = l.Err
	}
	switch {
	case err == nil:
		l.check(from, l.tag, l.sentPayload)
	case int64(len(l.sentPayload)) <= eager:
		w.Fatalf("%d bytes from a process that has died, which arrived whole: %w", len(l.sentPayload), err)
	default:
		w.Is("a message that is lost", err, framework.ErrTransport)
	}
}

// failedSender checks messages of every length, claimed and unclaimed, of a sender that fails. The receiver forgets the sender if why is not nil.
func (w *world) failedSender(why error) {
	a, b, c := w.nodesByRank[0], w.nodesByRank[1], w.nodesByRank[2]
	w.exchange(a, b, envelope{cid: 1, tag: 1}, pattern(1, 8))
	w.exchange(b, a, envelope{cid: 1, tag: 1}, pattern(1, 8))
	from, to := a.endpointOf(b), []*node{b, nil}
	caps := a.module.Caps()
	var claimed, there []orphan
	for _, n := range []int{0, 8, int(min(caps.Eager, 1<<20)), int(min(caps.Eager, 1<<20) + 1), 100_000, 1 << 20} {
		for i := range 3 * len(to) {
			l := orphan{tag: int32(10 + len(claimed) + len(there)), sentPayload: pattern(i, n)}
			b.send(a, envelope{cid: 4, tag: l.tag}, l.sentPayload)
			if i < len(to) {
				l.operation = a.claim(to[i], envelope{cid: 4, tag: l.tag})
				claimed = append(claimed, l)
			} else {
				a.probeUntilFound(nil, envelope{cid: 4, tag: l.tag}, false)
				there = append(there, l)
			}
		}
	}
	a.forgottenRanks = map[int]bool{1: why != nil}
	w.Check(b.close())
	for range 1000 { // a detects the failure.
		a.poll()
	}
	if why != nil {
		a.withLock(func() { a.module.Forget(from, why) })
	}
	// A new process reuses resources of the failed one in the network.
	w.exchange(c, a, envelope{cid: 4, tag: 1}, pattern(3, 1<<20))
	ends := func(l orphan, err error) { w.checkOrphan(l, b, caps.Eager, err) }
	envelopeOf := func(l orphan, i int) (mtl.Endpoint, mtl.Envelope) {
		if i%2 == 0 {
			return from, mtl.Envelope{CID: 4, Source: 1, Tag: l.tag}
		}
		return mtl.NoEndpoint, mtl.Envelope{CID: 4, Source: mtl.AnySource, Tag: l.tag}
	}
	for i, l := range there {
		var err error
		l.operation = a.operation()
		l.buf = make([]byte, len(l.sentPayload))
		ep, e := envelopeOf(l, i)
		if why == nil && i%4 < 2 { // Messages of a forgotten process are only claimed.
			a.withLock(func() { err = a.module.Recv(&l.Op, ep, e, l.buf) })
			ends(l, err)
			continue
		}
		a.withLock(func() { err = a.module.Probe(&l.Op, ep, e, true) })
		w.Check(err)
		w.awaitSuccess(l.operation)
		l.found(b, l.tag, len(l.sentPayload))
		l.isOver = false
		claimed = append(claimed, l)
	}
	for _, l := range claimed {
		var err error
		l.buf = make([]byte, len(l.sentPayload))
		a.withLock(func() { err = a.module.RecvClaimed(&l.Op, l.buf) })
		ends(l, err)
	}
	w.exchange(c, a, envelope{cid: 4, tag: 2}, pattern(4, 1<<20))
	w.idle(a)
	w.Check(a.close())
}

// listeners duplicates the listening sockets of this process. They stay open after a module has closed, like those of a process that is being
// killed and has already lost its connections.
func listeners() (fds []int) {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		fd, _ := strconv.Atoi(e.Name())
		if on, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || on == 0 {
			continue
		}
		if kept, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err == nil {
			fds = append(fds, kept)
		}
	}
	return fds
}

func (w *world) closeAll(fds []int) {
	for _, fd := range fds {
		w.Check(unix.Close(fd))
	}
}

// failedSenderReconnecting receives messages, claimed and unclaimed, of a failed sender to which a message is in flight, so that the network may be
// connecting to it.
func (w *world) failedSenderReconnecting() {
	a, b := w.nodesByRank[0], w.nodesByRank[1]
	w.exchange(a, b, envelope{cid: 1, tag: 1}, pattern(1, 8))
	w.exchange(b, a, envelope{cid: 1, tag: 1}, pattern(1, 8))
	from := a.endpointOf(b)
	eager := min(a.module.Caps().Eager, 1<<20)
	lengths := []int64{1 << 20, 100_000, eager + 1, eager, 8, 0}
	sent := func(i int) []byte { return pattern(i, int(lengths[i%len(lengths)])) }
	tag := func(i int) int32 { return int32(10 + i) }
	source := func(i int) *node { return []*node{b, nil}[i/len(lengths)%2] }
	claimed := make([]*operation, 2*len(lengths))
	// A network on the node may read a message from its buffer after b has closed. A real process that fails takes its memory along.
	buffers := make([][]byte, 2*len(claimed))
	defer runtime.KeepAlive(buffers)
	for i := range buffers { // The second half is unclaimed.
		buffers[i] = sent(i)
		b.send(a, envelope{cid: 4, tag: tag(i)}, buffers[i])
		if i < len(claimed) {
			claimed[i] = a.claim(source(i), envelope{cid: 4, tag: tag(i)})
		} else {
			a.probeUntilFound(nil, envelope{cid: 4, tag: tag(i)}, false)
		}
	}
	unread := a.send(b, envelope{cid: 4, tag: 1}, pattern(1, 1<<20))
	a.forgottenRanks = map[int]bool{1: true}
	defer w.closeAll(listeners())
	w.Check(b.close())
	for range 1000 { // a detects the failure.
		a.poll()
	}
	call, refused := a.trySend(b, envelope{cid: 4, tag: 1}, pattern(1, 8))
	received := make([]*operation, 2*len(claimed))
	for i := range received {
		var o *operation
		var err error
		buf := make([]byte, len(sent(i)))
		if i < len(claimed) {
			o = claimed[i]
			a.withLock(func() { err = a.module.RecvClaimed(&o.Op, buf) })
		} else {
			var e mtl.Envelope
			var ep mtl.Endpoint
			o, e, ep = a.newMatch(source(i), envelope{cid: 4, tag: tag(i)})
			a.withLock(func() { err = a.module.Recv(&o.Op, ep, e, buf) })
		}
		o.buf = buf
		if err == nil {
			received[i] = o
			continue
		}
		if int64(len(o.buf)) <= eager {
			w.Fatalf("%d bytes from a process that has died, which arrived whole: %w", len(o.buf), err)
		}
		w.Is("the receive of a message that is lost", err, framework.ErrTransport)
	}
	for i, o := range received {
		if o != nil && int64(len(o.buf)) <= eager {
			w.awaitSuccess(o)
			o.check(b, tag(i), sent(i))
		}
	}
	a.withLock(func() { a.module.Forget(from, errForgotten) })
	w.awaitEnd(unread)
	if refused == nil {
		w.awaitEnd(call)
	}
	for i, o := range received {
		if o == nil || int64(len(o.buf)) <= eager {
			continue
		}
		if i >= len(claimed) && !o.hasEnded() {
			a.withLock(func() { a.module.Cancel(&o.Op) })
		}
		if w.awaitEnd(o); o.Err != nil || !o.Canceled {
			w.checkOrphan(orphan{o, tag(i), sent(i)}, b, eager, nil)
		}
	}
	w.idle(a)
	w.Check(a.close())
}
