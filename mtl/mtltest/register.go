package mtltest

import (
	"bytes"
	"errors"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
)

func registerCases() claims {
	return claims{
		twoNodes("RegisteredMemoryIsSentFromAndReceivedInto", (*world).registered),
		twoNodes("RegisteredMemoryIsGivenBackOnceAndNotInUse", (*world).deregistered),
	}
}

// registrar returns the Registrar of the module, or skips the case.
func (n *node) registrar() mtl.Registrar {
	r, ok := framework.As[mtl.Registrar](n.module)
	if !ok {
		n.w.Skipf("the module registers no memory")
	}
	return r
}

// register returns registered memory.
func (n *node) register(bytes int) []byte {
	r, o, b := n.registrar(), n.operation(), make([]byte, bytes)
	var err error
	n.withLock(func() { err = r.Register(&o.Op, b) })
	n.w.Check(err)
	if n.w.awaitEnd(o); errors.Is(o.Err, framework.ErrUnsupported) {
		n.w.Skipf("%v", o.Err)
	}
	n.w.Check(o.Err)
	return b
}

// deregister waits for the end of Deregister, or returns its error.
func (n *node) deregister(b []byte) (err error) {
	r, o := n.registrar(), n.operation()
	n.withLock(func() { err = r.Deregister(&o.Op, b) })
	if err == nil {
		n.w.awaitSuccess(o)
		if o.Found {
			n.w.Fatalf("memory without operations remains in use")
		}
	}
	return err
}

func (w *world) registered(a, b *node) {
	const room = 5 << 20
	from, to := a.register(room), b.register(room)
	for i, n := range sizes(a.module.Caps()) {
		at := i * 8
		sent, m := pattern(i, n), envelope{cid: 7, tag: int32(i)}
		copy(from[at:], sent)
		copy(to[at:], guard(n+8))
		switch i % 3 {
		case 0: // Both buffers are registered.
			b.receive(a, m, to[at:at+n]).mustGet(a, m.tag, sent, a.send(b, m, from[at:at+n]))
		case 1: // An unexpected message from other memory.
			s := a.send(b, m, sent)
			w.drainNetwork()
			b.receive(nil, m, to[at:at+n]).mustGet(a, m.tag, sent, s)
		case 2: // A claimed message into other memory.
			s := a.send(b, m, from[at:at+n])
			r := b.probeUntilFound(a, m, true)
			r.isOver, r.buf = false, make([]byte, n)
			b.withLock(func() { w.Check(b.module.RecvClaimed(&r.Op, r.buf)) })
			r.mustGet(a, m.tag, sent, s)
		}
		if i%3 < 2 {
			w.Same("what follows a message", to[at+n:at+n+8], guard(8))
		}
	}
	w.Check(a.deregister(from))
	w.Check(b.deregister(to))
	w.exchange(a, b, envelope{cid: 7, tag: 1}, pattern(1, 1<<20))
}

func (w *world) deregistered(a, b *node) {
	mem, other := b.register(1000), b.register(1<<20)
	m := envelope{cid: 7, tag: 1}
	short, r := b.receive(a, m, mem[:8]), b.receive(a, m, mem[100:200])
	stillUsed := func() {
		if err := b.deregister(mem); !errors.Is(err, framework.ErrPending) {
			w.Fatalf("deregistered while a receive uses it: %v", err)
		}
	}
	stillUsed()
	for _, wrong := range [][]byte{mem[:999], mem[1:], make([]byte, 1000), nil} {
		if err := b.deregister(wrong); err == nil || errors.Is(err, framework.ErrPending) {
			w.Fatalf("Deregister of other memory: %v", err)
		}
	}
	r.n.w.awaitSuccess(a.send(b, m, pattern(2, 8)), short)
	stillUsed()
	r.mustGet(a, m.tag, pattern(1, 100), a.send(b, m, pattern(1, 100)))
	short = b.receive(a, m, mem[:8])
	stillUsed()
	short.mustGet(a, m.tag, pattern(2, 8), a.send(b, m, pattern(2, 8)))
	w.Check(b.deregister(mem))
	if err := b.deregister(mem); err == nil {
		w.Fatalf("memory was deregistered twice")
	}
	copy(other, bytes.Repeat([]byte{1}, len(other))) // It stays registered until Close.
}
