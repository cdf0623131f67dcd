package tcp

import (
	"errors"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// The earlier frames arrive by another link during the read.
func TestReorderBuffer_GapFillsMeanwhile_DeliversAtOnce(t *testing.T) {
	j := newJob(t, 2, nil)
	a, b, _ := j.met()
	p := b.peers.byIncarnation[a.incarnation]
	h := header{bodySize: 4, kind: kindFrame, number: p.path.nextExpected}
	p.bufferFrame(h, []byte("late"))
	if len(b.got) != 2 || string(b.got[1]) != "late" {
		t.Fatalf("%q", b.got)
	}
	p.bufferFrame(h, []byte("late"))
	if h.number += 2; len(b.got) != 2 {
		t.Fatalf("it is handed up twice: %q", b.got)
	}
	p.bufferFrame(h, []byte("then"))
	p.bufferFrame(h, []byte("then"))
	h.number--
	p.bufferFrame(h, []byte("next"))
	if len(b.got) != 4 || string(b.got[2]) != "next" || string(b.got[3]) != "then" || len(p.reorderBuffer.framesByNumber)+p.reorderBuffer.bytesBuffered != 0 {
		t.Fatalf("%q, %d bytes are left aside", b.got, p.reorderBuffer.bytesBuffered)
	}
}

func TestReorderBuffer_AllFramesBuffered_DeliversInOrder(t *testing.T) {
	j := newJob(t, 2, func(_ int, p *params) { p.LinkCount, p.Window = 4, 1<<20 })
	a, b, e := j.met()
	from, to := a.peers.byIncarnation[b.incarnation], b.peers.byIncarnation[a.incarnation]
	frame := make([]byte, a.config.frameLimit)
	sent := 0
	j.until("all frames", func() bool {
		to.reorderBuffer.isBuffering = true
		for from.path.countUp() < 4 || sent < 400 {
			dst := e.Reserve(len(frame), btl.RingStart)
			if dst == nil {
				break
			}
			le.PutUint64(frame, uint64(sent))
			e.Commit(copy(dst, frame))
			sent++
		}
		return sent >= 400 && len(b.got) == 1+sent
	})
	for k, got := range b.got[1:] {
		if n := le.Uint64(got); n != uint64(k) || len(got) != len(frame) {
			t.Fatalf("frame %d is number %d, of %d bytes", k, n, len(got))
		}
	}
	if to.reorderBuffer.bytesBuffered != 0 || len(to.reorderBuffer.framesByNumber) != 0 {
		t.Errorf("%d bytes are left aside", to.reorderBuffer.bytesBuffered)
	}
}

// lent counts completions.
type lent struct{ calls int }

func (l *lent) LocallyComplete() { l.calls++ }

// If its receive ends meanwhile, the rest of the payload is dropped, and the next frame arrives.
func TestPlacedPayload_ManyPolls_CompletesOrIsDropped(t *testing.T) {
	j := newJob(t, 2, func(_ int, p *params) { p.FrameLimit, p.Window = 16<<20, 64<<20 })
	a, b, e := j.met()
	payload := make([]byte, 12<<20)
	for i := range payload {
		payload[i] = byte(i * 7 >> 3)
	}
	for _, ends := range []bool{false, true} {
		dst, asked, was := make([]byte, len(payload)), 0, []byte(nil)
		b.place = func(header []byte, size int) []byte {
			if asked++; string(header) != "head" || size != len(payload) {
				t.Fatalf("a place is asked for with %q and %d", header, size)
			}
			if ends && asked > 1 {
				if was == nil {
					was = slices.Clone(dst)
				}
				return nil
			}
			return dst
		}
		free, placed, got := &lent{}, b.placed, len(b.got)
		if !e.(btl.Gatherer).Gather([]byte("head"), payload, free) {
			t.Fatal("no room")
		}
		j.send(e, []byte("behind"))
		j.until("the next frame", func() bool { return len(b.got) == got+1 })
		j.until("the payload is free", func() bool { return free.calls == 1 })
		switch {
		case ends && (b.placed != placed || !slices.Equal(dst, was)):
			t.Error("something was written where the receive had ended")
		case !ends && (b.placed != placed+1 || !slices.Equal(dst, payload)):
			t.Error("the payload is missing")
		}
		if asked < 2 {
			t.Errorf("a place was asked for %d times: this test tests nothing", asked)
		}
	}
	if len(a.lost)+len(b.lost) > 0 {
		t.Error(a.lost, b.lost)
	}
}

// No further event announces the frame.
func TestPeek_NotDropped_NextPollDelivers(t *testing.T) {
	j := newJob(t, 2, nil)
	a, b, e := j.met()
	source := b.PeerSource(a.incarnation).(btl.Peeker)
	for b.PollAll() > 0 || len(b.readyLinks) > 0 {
	}
	j.send(e, []byte("peeked"))
	l := b.peers.byIncarnation[a.incarnation].linksBySlot[0]
	for n := 0; n == 0; {
		n, _ = unix.IoctlGetInt(l.fd, unix.SIOCINQ)
	}
	if got := source.Peek(1); string(got) != "peeked" {
		t.Fatalf("%q", got)
	}
	if b.Arm() {
		t.Error("it would sleep, and has a frame")
	}
	if b.PollAll(); len(b.got) != 2 {
		t.Errorf("%d frames are handed up", len(b.got))
	}
}

// The last frames of a peer that has closed or died are in the socket.
func TestLink_WriteFails_ReadsToTheEndFirst(t *testing.T) {
	for _, change := range []func(int, *params){nil, overTLS} {
		j := newJob(t, 2, change)
		a, b, e := j.met()
		back := b.connect(a)
		j.send(back, []byte("first"))
		j.until("both ways", func() bool { return len(a.got) == 1 && e.Idle() && back.Idle() })
		for _, s := range []string{"second", "third"} {
			e.Commit(copy(e.Reserve(len(s), btl.RingStart), s))
		}
		a.end()
		l := b.peers.byIncarnation[a.incarnation].linksBySlot[0]
		for range 1000 { // The system needs some time.
			if l.state > connOpen {
				break
			}
			b.pacer.pollCount++
			back.Commit(copy(back.Reserve(2, btl.RingStart), "no"))
			time.Sleep(time.Millisecond)
		}
		j.until("the end", func() bool { return len(b.lost) > 0 })
		if len(b.got) != 3 || !errors.Is(b.lost[0], framework.ErrPeerClosed) {
			t.Errorf("%q, then %v", b.got, b.lost)
		}
	}
}
