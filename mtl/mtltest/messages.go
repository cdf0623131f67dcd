package mtltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/mtl"
)

func messageCases() claims {
	return claims{
		kittest.Of("CapsArePlausibleAndFixed", 2, capsFixed),
		kittest.Of("MessagesOfEverySizeArriveWhole", 2, everySize),
		kittest.Of("UnexpectedMessagesOfEverySizeWait", 2, unexpected),
		kittest.Of("MessagesToOneselfArrive", 1, toOneself),
		kittest.Of("LongerMessageIsTruncatedAndItsLengthTold", 2, truncated),
		kittest.Of("MessageAboveTheLimitIsRefusedBeforeItIsSent", 2, tooLong),
		kittest.Of("SendersBufferIsFreeWhenItIsDone", 2, bufferIsFree),
		kittest.Of("NothingRefusesForWantOfRoom", 2, manyAtOnce),
		kittest.Of("SynchronousSendWaitsForItsMatch", 2, synchronous),
		kittest.Of("SynchronousSendsOfOneTagCompleteInOrder", 2, synchronousOrder),
		kittest.Of("SynchronousMessageToAnySourceIsAnswered", 3, synchronousAny),
		kittest.Of("MessagesAllocateNothing", 2, noAllocation),
	}
}

func capsFixed(ctx context.Context, w *world) error {
	a, b := w.nodes[0], w.nodes[1]
	caps, offer, blob := a.module.Caps(), a.module.Offer(), bytes.Clone(a.module.Blob())
	switch {
	case caps.CIDBits < 4 || caps.CIDBits > 32 || caps.SourceBits < 8 || caps.SourceBits > 31 || caps.TagBits < 15 || caps.TagBits > 31:
		return fmt.Errorf("implausible widths: %+v", caps)
	case caps.MaxMessage < 1<<20 || caps.Inject < 0 || int64(caps.Inject) > caps.MaxMessage:
		return fmt.Errorf("implausible sizes: %+v", caps)
	case caps.ControlLimit < mtl.MinControlLimit:
		return fmt.Errorf("control messages of %d bytes, and %d are needed", caps.ControlLimit, mtl.MinControlLimit)
	case offer == "" || offer != b.module.Offer():
		return fmt.Errorf("the offers are %q and %q", offer, b.module.Offer())
	}
	if err := w.exchange(ctx, a, b, envelope{cid: 1, tag: 2}, pattern(1, 1000)); err != nil {
		return err
	}
	if caps != a.module.Caps() || offer != a.module.Offer() || !bytes.Equal(blob, a.module.Blob()) {
		return errors.New("caps, offer or blob changed")
	}
	return nil
}

// exchange sends a message into a receive that is there.
func (w *world) exchange(ctx context.Context, a, b *node, m envelope, sent []byte) error {
	r, err := b.receive(a, m, make([]byte, len(sent)))
	if err != nil {
		return err
	}
	s, err := a.send(b, m, sent)
	if err != nil {
		return err
	}
	if err := w.all(ctx, r, s); err != nil {
		return err
	}
	return r.check(a, m.tag, sent)
}

// sizes are those around which modules change what they do.
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

func everySize(ctx context.Context, w *world) error {
	a, b := w.nodes[0], w.nodes[1]
	for i, n := range sizes(a.module.Caps()) {
		// The buffer is longer, and its end must stay.
		buf := bytes.Repeat([]byte{0xee}, n+8)
		from := a
		if i%2 == 1 {
			from = nil
		}
		r, err := b.receive(from, envelope{cid: 7, tag: int32(i)}, buf)
		if err != nil {
			return err
		}
		sent := pattern(i, n)
		s, err := a.send(b, envelope{cid: 7, tag: int32(i)}, sent)
		if err != nil {
			return err
		}
		if err := w.all(ctx, r, s); err != nil {
			return fmt.Errorf("%d bytes: %w", n, err)
		}
		if err := r.check(a, int32(i), sent); err != nil {
			return err
		}
		if !bytes.Equal(buf[n:], bytes.Repeat([]byte{0xee}, 8)) {
			return fmt.Errorf("%d bytes: something was written behind them", n)
		}
	}
	return nil
}

func unexpected(ctx context.Context, w *world) error {
	a, b := w.nodes[0], w.nodes[1]
	all := sizes(a.module.Caps())
	var ops []*operation
	var sent [][]byte
	for i, n := range all {
		sent = append(sent, pattern(i, n))
		s, err := a.send(b, envelope{cid: 7, tag: int32(i)}, sent[i])
		if err != nil {
			return err
		}
		ops = append(ops, s)
	}
	if err := w.quiet(ctx); err != nil {
		return err
	}
	receives := make([]*operation, len(all))
	for i := range all {
		j := len(all) - 1 - i // not in the order in which they came
		r, err := b.receive(a, envelope{cid: 7, tag: int32(j)}, make([]byte, all[j]))
		if err != nil {
			return err
		}
		receives[j] = r
	}
	if err := w.all(ctx, append(ops, receives...)...); err != nil {
		return err
	}
	for i, r := range receives {
		if err := r.check(a, int32(i), sent[i]); err != nil {
			return err
		}
	}
	return nil
}

func toOneself(ctx context.Context, w *world) error {
	n := w.nodes[0]
	for i, size := range []int{0, 8, 10000, 1 << 20} {
		if err := w.exchange(ctx, n, n, envelope{cid: 3, tag: int32(i)}, pattern(i, size)); err != nil {
			return err
		}
		if err := w.exchange(ctx, n, n, envelope{cid: 3, tag: int32(i), mode: mtl.Synchronous}, pattern(i, size)); err != nil {
			return err
		}
	}
	return nil
}

func truncated(ctx context.Context, w *world) error {
	a, b := w.nodes[0], w.nodes[1]
	for i, size := range []int{1, 8, 64, 1000, 1 << 20} {
		for _, early := range []bool{true, false} {
			sent := pattern(i, size)
			buf := bytes.Repeat([]byte{0xee}, size)
			m := envelope{cid: 7, tag: int32(i)}
			room := size / 2
			var r, s *operation
			var err error
			if early {
				r, err = b.receive(nil, m, buf[:room])
			}
			if err == nil {
				s, err = a.send(b, m, sent)
			}
			if err == nil && !early {
				if err = w.quiet(ctx); err == nil {
					r, err = b.receive(a, m, buf[:room])
				}
			}
			if err != nil {
				return err
			}
			if err := w.until(ctx, "a truncated message", func() bool { return r.ended() && s.ended() }); err != nil {
				return err
			}
			switch {
			case s.Err != nil:
				return fmt.Errorf("%d bytes: the send failed: %w", size, s.Err)
			case !errors.Is(r.Err, framework.ErrTruncate):
				return fmt.Errorf("%d bytes into %d: %v", size, room, r.Err)
			case r.Source != 0 || r.Tag != m.tag || r.Bytes != int64(size):
				return fmt.Errorf("%d bytes into %d: source %d, tag %d, %d bytes", size, room, r.Source, r.Tag, r.Bytes)
			case !bytes.Equal(buf[:room], sent[:room]) || !bytes.Equal(buf[room:], bytes.Repeat([]byte{0xee}, size-room)):
				return fmt.Errorf("%d bytes into %d: the buffer has not what it should", size, room)
			}
		}
	}
	return nil
}

func tooLong(ctx context.Context, w *world) error {
	a, b := w.nodes[0], w.nodes[1]
	limit := a.module.Caps().MaxMessage
	if limit > math.MaxInt32 {
		return fmt.Errorf("%w: no message of this test is longer than %d bytes", ErrSkip, limit)
	}
	if _, err := a.send(b, envelope{cid: 1, tag: 1}, make([]byte, limit+1)); !errors.Is(err, mtl.ErrTooLong) {
		return fmt.Errorf("%d bytes: %v", limit+1, err)
	}
	return w.exchange(ctx, a, b, envelope{cid: 1, tag: 1}, pattern(1, 8))
}

func bufferIsFree(ctx context.Context, w *world) error {
	a, b := w.nodes[0], w.nodes[1]
	for i, n := range []int{8, 300, 5000, 100000} {
		m := envelope{cid: 2, tag: int32(i)}
		buf := pattern(i, n)
		s, err := a.send(b, m, buf)
		if err != nil {
			return err
		}
		// A long one may need its receive first.
		for k := 0; k < 100 && !s.ended(); k++ {
			w.pollAll()
		}
		if s.ended() {
			clear(buf)
		}
		r, err := b.receive(a, m, make([]byte, n))
		if err == nil {
			err = w.all(ctx, r, s)
		}
		if err == nil {
			err = r.check(a, m.tag, pattern(i, n))
		}
		if err != nil {
			return fmt.Errorf("%d bytes: %w", n, err)
		}
	}
	return nil
}

func manyAtOnce(ctx context.Context, w *world) error {
	a, b := w.nodes[0], w.nodes[1]
	const count = 5000
	var ops, receives []*operation
	for i := range count {
		n := 8
		if i%10 == 0 {
			n = 2000
		}
		s, err := a.send(b, envelope{cid: 4, tag: int32(i % 100)}, pattern(i, n))
		if err != nil {
			return err
		}
		ops = append(ops, s)
	}
	for i := range count {
		r, err := b.receive(a, envelope{cid: 4, tag: int32(i % 100)}, make([]byte, 2000))
		if err != nil {
			return err
		}
		receives = append(receives, r)
	}
	if err := w.all(ctx, append(ops, receives...)...); err != nil {
		return err
	}
	for i, r := range receives {
		n := 8
		if i%10 == 0 {
			n = 2000
		}
		if err := r.check(a, int32(i%100), pattern(i, n)); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	return nil
}

func synchronous(ctx context.Context, w *world) error {
	a, b := w.nodes[0], w.nodes[1]
	for i, n := range []int{0, 8, 1000, 1 << 20} {
		m := envelope{cid: 5, tag: int32(i), mode: mtl.Synchronous}
		s, err := a.send(b, m, pattern(i, n))
		if err != nil {
			return err
		}
		if err := w.quiet(ctx); err != nil {
			return err
		}
		if s.ended() {
			return fmt.Errorf("%d bytes: it was over before there was a receive", n)
		}
		r, err := b.receive(a, m, make([]byte, n))
		if err == nil {
			err = w.all(ctx, r, s)
		}
		if err == nil {
			err = r.check(a, m.tag, pattern(i, n))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func synchronousOrder(ctx context.Context, w *world) error {
	a, b := w.nodes[0], w.nodes[1]
	m := envelope{cid: 5, tag: 9, mode: mtl.Synchronous}
	var sends []*operation
	for i := range 4 {
		s, err := a.send(b, m, pattern(i, 100))
		if err != nil {
			return err
		}
		sends = append(sends, s)
	}
	// One with another tag, which is answered first.
	other, err := a.send(b, envelope{cid: 5, tag: 8, mode: mtl.Synchronous}, nil)
	if err != nil {
		return err
	}
	r, err := b.receive(a, envelope{cid: 5, tag: 8}, nil)
	if err != nil {
		return err
	}
	if err := w.all(ctx, r, other); err != nil {
		return err
	}
	for i, s := range sends {
		if s.ended() {
			return fmt.Errorf("send %d was over before its receive", i)
		}
		r, err := b.receive(a, envelope{cid: 5, tag: 9}, make([]byte, 100))
		if err == nil {
			err = w.all(ctx, r, s)
		}
		if err == nil {
			err = r.check(a, 9, pattern(i, 100))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func synchronousAny(ctx context.Context, w *world) error {
	c := w.nodes[2]
	for round := range 10 {
		var ops []*operation
		for _, n := range w.nodes[:2] {
			s, err := n.send(c, envelope{cid: 6, tag: int32(round), mode: mtl.Synchronous}, pattern(n.rank, 50))
			if err != nil {
				return err
			}
			r, err := c.receive(nil, envelope{cid: 6, tag: mtl.AnyTag}, make([]byte, 50))
			if err != nil {
				return err
			}
			ops = append(ops, s, r)
		}
		if err := w.all(ctx, ops...); err != nil {
			return err
		}
		if ops[1].Source+ops[3].Source != 1 {
			return fmt.Errorf("they came from %d and %d", ops[1].Source, ops[3].Source)
		}
	}
	return nil
}

// noAllocation uses the same operations and buffers again and again.
func noAllocation(ctx context.Context, w *world) error {
	if underRace {
		return fmt.Errorf("%w: the race detector allocates", ErrSkip)
	}
	a, b := w.nodes[0], w.nodes[1]
	to, err := a.to(b)
	if err != nil {
		return err
	}
	from, err := b.to(a)
	if err != nil {
		return err
	}
	s, r := a.operation(), b.operation()
	e := mtl.Envelope{CID: 3, Source: 0, Tag: 4}
	for _, n := range []int{8, 3000, 300000} {
		out, in := pattern(1, n), make([]byte, n)
		var failed error
		once := func() {
			s.over, s.done, r.over = false, false, false
			b.engine.Lock()
			err := b.module.Recv(&r.Op, from, e, in)
			b.engine.Unlock()
			a.engine.Lock()
			done, err2 := a.module.Send(&s.Op, to, e, out, mtl.Standard)
			a.engine.Unlock()
			s.done = done
			failed = errors.Join(failed, err, err2)
			for failed == nil && !(r.over && (s.over || s.done)) && ctx.Err() == nil {
				w.pollAll()
			}
		}
		for range 20 { // connections and tables grow first
			once()
		}
		// Less than one in ten: the runtime's own, or a table that grows once more.
		if per := testing.AllocsPerRun(200, once); per >= 0.1 && failed == nil {
			failed = fmt.Errorf("%d bytes: %.2f allocations per message", n, per)
		}
		if failed != nil {
			return failed
		}
	}
	return nil
}
