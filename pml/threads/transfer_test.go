package threads

import (
	"bytes"
	"context"
	"sync"
	"testing"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// TestTransfer_CopiedFromBothEnds_IsWholeAndCompletesOnce has goroutines claim chunks from both
// ends, also after the last one.
func TestTransfer_CopiedFromBothEnds_IsWholeAndCompletesOnce(t *testing.T) {
	e := progress.New(progress.Options{})
	defer e.Close()
	p := new(Params)
	framework.FillDefaults(p)
	team := NewTeam(framework.Incarnation{ID: 1, Nonce: 1}, e, 2, *p)
	defer team.Close()
	o := newOffer()
	for _, size := range []int{chunkSize + 1, 5 * chunkSize, 37*chunkSize - 3} {
		from, to := make([]byte, size), make([]byte, size-1)
		for i := range from {
			from[i] = byte(i * 7 >> 3)
		}
		o.buf, o.senderRank = pml.Buffer{Bytes: from}, team.Rank(1)
		o.open(team.Rank(0), &receive{buf: pml.Buffer{Bytes: to}}, int64(len(to)))
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for range 3 {
					o.copyChunks(i%2 == 0, nil)
					cpu.Pause()
				}
			})
		}
		wg.Wait()
		if !bytes.Equal(to, from[:len(to)]) {
			t.Fatalf("%d bytes are not what was sent", size)
		}
		for i, want := range []kind{kindReceived, kindSent} {
			r := team.Rank(i)
			c := r.peek()
			if c == nil || c.header().kind() != want {
				t.Fatalf("rank %d: cell %+v, want one of kind %d", i, c, want)
			}
			if r.pointer() != &o.msg {
				t.Error("another message")
			}
			if r.advance(); r.peek() != nil {
				t.Errorf("rank %d was notified twice", i)
			}
			r.release()
		}
	}
}

// transfer is an offer from rank 0 to rank 1 and the receive that it matches.
type transfer struct {
	t             *testing.T
	comms         []*comm
	send, receive *pml.Request
	sent, got     []byte
}

// startTransfer sends the offer and starts the receive, whose buffer has a form. The transfer is deferred until the
// receiver's lock is released next by Release.
func startTransfer(t *testing.T, comms []*comm, size int, form *pml.Form) *transfer {
	x := &transfer{t: t, comms: comms, sent: bytes.Repeat([]byte{7}, size), got: make([]byte, size)}
	var err error
	if x.send, err = comms[0].Isend(pml.Buffer{Bytes: x.sent}, 1, 5, p2p, pml.Standard); err != nil {
		t.Fatal(err)
	}
	receiver := comms[1].rank.engine
	receiver.Lock()
	x.receive = &comms[1].postReceive(pml.Buffer{Bytes: x.got, Form: form}, 0, 5, p2p).Request
	receiver.Unlock()
	return x
}

// run runs the transfer.
func (x *transfer) run() {
	receiver := x.comms[1].rank.engine
	receiver.Lock()
	receiver.Release()
}

// check reports operations that are not complete. It makes no progress.
func (x *transfer) check(requests ...*pml.Request) {
	x.t.Helper()
	for i, r := range requests {
		e := x.comms[1].rank.engine
		if r == x.send {
			e = x.comms[0].rank.engine
		}
		e.Lock()
		if !r.Done() || r.Status.Err != nil {
			x.t.Errorf("operation %d: done %t, %v", i, r.Done(), r.Status.Err)
		}
		e.Unlock()
	}
	if !bytes.Equal(x.got, x.sent) {
		x.t.Error("not what was sent")
	}
}

// observer is a task that records the state of a transfer.
type observer struct {
	*transfer
	chunksLeft int32
	isPolled   bool
}

func (o *observer) Run(*progress.Tasks) {
	o.chunksLeft = o.comms[0].rank.offeredSends.head.offer.uncopiedChunks.Load()
	o.isPolled = o.comms[1].rank.pollWord.Polled()
}

// TestTransfer_LongTaskOfWait_IsDividedAndReturnsTokens checks that another task of the rank runs in between.
func TestTransfer_LongTaskOfWait_IsDividedAndReturnsTokens(t *testing.T) {
	_, comms := openTeam(t, 2)
	const chunks = 3 * chunksPerRun
	x := startTransfer(t, comms, chunks*chunkSize, nil)
	o := &observer{transfer: x}
	e := comms[1].rank.engine
	e.Lock()
	e.Defer(o)
	e.Unlock()
	if _, err := x.receive.Wait(deadline(t), x.receive.Generation()); err != nil {
		t.Fatal(err)
	}
	if o.chunksLeft != chunks-chunksPerRun || o.isPolled {
		t.Errorf("%d of %d chunks are left, polled %t", o.chunksLeft, chunks, o.isPolled)
	}
	if !bytes.Equal(x.got, x.sent) {
		t.Error("not what was sent")
	}
}

// gate is a layout of contiguous bytes into which nothing is copied before it is open.
type gate struct {
	size int64
	open <-chan struct{}
	t    *testing.T
	ctx  context.Context
}

func (g *gate) Size() int64                { return g.size }
func (g *gate) Extent() int64              { return g.size }
func (g *gate) Pack([]byte, []byte, int64) {}

func (g *gate) Unpack(buf, src []byte, offset int64) {
	select {
	case <-g.open:
	case <-g.ctx.Done():
		g.t.Error("copied under the lock of the process's engine")
	}
	copy(buf[offset:], src)
}

// TestTransfer_ProcessLockHeld_IsCopiedByAnotherGoroutine checks that a poll of the process's engine runs the tasks of a
// postponed rank.
func TestTransfer_ProcessLockHeld_IsCopiedByAnotherGoroutine(t *testing.T) {
	for _, closes := range []bool{false, true} {
		team, comms := openTeam(t, 2)
		ctx, open := deadline(t), make(chan struct{})
		const size = 5*chunkSize + 1
		x := startTransfer(t, comms, size, &pml.Form{Layout: &gate{size: size, open: open, t: t, ctx: ctx}})
		team.processEngine.Lock()
		team.queuePostponed(team.Rank(1))
		team.Poll()
		team.processEngine.Unlock()
		if closes {
			go close(open)
			team.Close() // waits for the copy
			x.check(x.send, x.receive)
			continue
		}
		close(open)
		for _, r := range []*pml.Request{x.send, x.receive} {
			if _, err := r.Wait(ctx, r.Generation()); err != nil {
				t.Error(err)
			}
		}
		if !bytes.Equal(x.got, x.sent) {
			t.Error("not what was sent")
		}
	}
}

// TestOffer_WithdrawnAndTakenAtOnce_OneSucceeds is the word that decides.
func TestOffer_WithdrawnAndTakenAtOnce_OneSucceeds(t *testing.T) {
	for round := range 2000 {
		o := newOffer()
		o.state.Store(offerInRing)
		var withdrawn, taken bool
		var wg sync.WaitGroup
		wg.Go(func() { withdrawn = o.withdraw() })
		wg.Go(func() {
			if o.take(offerHeld) {
				if round%2 == 0 {
					o.state.Store(offerMatched)
					taken = true
					return
				}
				o.state.Store(offerUnmatched)
				taken = o.take(offerMatched)
			}
		})
		wg.Wait()
		if withdrawn == taken {
			t.Fatalf("round %d: withdrawn %t, taken %t", round, withdrawn, taken)
		}
	}
}
