package colltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework"
)

// Options say how a World misbehaves within what the contract allows.
type Options struct {
	// Synchronous has every send wait until its message was received: an algorithm that
	// relies on buffering then deadlocks.
	Synchronous bool
	// FailRank's operation number FailAt (counted from 1) fails with errFault.
	// FailAt 0: none does.
	FailRank, FailAt int
}

// World is a communicator whose members are goroutines of this process, each of which
// carries a schedule out inline.
type World struct {
	opt   Options
	boxes []mailbox
	peers []*Peer
}

type mailbox struct {
	mu      sync.Mutex
	arrived chan struct{} // closed and replaced when a message comes
	queue   []*message
}

type message struct {
	src   int
	data  []byte
	taken chan struct{}
}

// NewWorld makes a communicator of n members.
func NewWorld(n int, opt Options) *World {
	w := &World{opt: opt, boxes: make([]mailbox, n)}
	for r := range n {
		w.boxes[r].arrived = make(chan struct{})
		w.peers = append(w.peers, &Peer{w: w, rank: r})
	}
	return w
}

// Run calls f for each member in a goroutine of its own, and returns their
// errors by rank. When one fails, the context of the others ends.
func (w *World) Run(ctx context.Context, f func(ctx context.Context, p *Peer) error) []error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(w.peers))
	var wg sync.WaitGroup
	for r, p := range w.peers {
		wg.Go(func() {
			if errs[r] = f(ctx, p); errs[r] != nil {
				cancel()
			}
		})
	}
	wg.Wait()
	return errs
}

// Left says what operations that have ended left behind: messages that nobody
// received, or what is still under way.
func (w *World) Left() error {
	for r, p := range w.peers {
		if n := len(p.open); n != 0 {
			return fmt.Errorf("rank %d has %d messages under way", r, n)
		}
		if n := len(w.boxes[r].queue); n != 0 {
			return fmt.Errorf("rank %d left %d messages without receiving them", r, n)
		}
	}
	return nil
}

// Peer is one member of a World. It implements coll.Peers.
type Peer struct {
	w    *World
	rank int
	ops  int
	open []started

	instance coll.Instance // of the algorithm, if it has any
	call     *coll.Call
}

// started is a send, or a receive from rank from.
type started struct {
	send *message
	buf  []byte
	from int
}

var _ coll.Peers = (*Peer)(nil)

// Rank returns the member's rank.
func (p *Peer) Rank() int { return p.rank }

var errFault = errors.New("colltest: fault")

// operation counts, and fails where the options say so.
func (p *Peer) operation() error {
	if p.ops++; p.w.opt.FailAt == p.ops && p.w.opt.FailRank == p.rank {
		return errFault
	}
	return nil
}

func (p *Peer) inRange(rank int) error {
	if rank < 0 || rank >= len(p.w.peers) || rank == p.rank {
		return fmt.Errorf("rank %d exchanges a message with rank %d: %w", p.rank, rank, framework.ErrRank)
	}
	return nil
}

// Send implements coll.Peers.
func (p *Peer) Send(buf []byte, to int) (over bool, err error) {
	if err := errors.Join(p.operation(), p.inRange(to)); err != nil {
		return false, err
	}
	m := &message{src: p.rank, data: bytes.Clone(buf), taken: make(chan struct{})}
	box := &p.w.boxes[to]
	box.mu.Lock()
	box.queue = append(box.queue, m)
	close(box.arrived)
	box.arrived = make(chan struct{})
	box.mu.Unlock()
	if p.w.opt.Synchronous {
		p.open = append(p.open, started{send: m})
	}
	return !p.w.opt.Synchronous, nil
}

// StartRecv implements coll.Peers. The receive takes its message when it is finished:
// no other one from that rank comes between.
func (p *Peer) StartRecv(buf []byte, from int) error {
	if err := errors.Join(p.operation(), p.inRange(from)); err != nil {
		return err
	}
	poison(buf)
	p.open = append(p.open, started{buf: buf, from: from})
	return nil
}

// Finish implements coll.Peers. A receive that was started before, from whomever, may
// be one that a synchronous sender waits for: so all that have come are taken.
func (p *Peer) Finish(ctx context.Context) (int, error) {
	if len(p.open) == 0 {
		return 0, errors.New("colltest: nothing is under way")
	}
	first := p.open[0]
	p.open = p.open[1:]
	if first.send == nil {
		return p.receive(ctx, first.buf, first.from)
	}
	for {
		arrived := p.takeStarted()
		select {
		case <-first.send.taken:
			return 0, nil
		case <-arrived:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// takeStarted has the senders of what receives wait for know that it is taken. Data are
// copied later.
func (p *Peer) takeStarted() <-chan struct{} {
	box := &p.w.boxes[p.rank]
	box.mu.Lock()
	defer box.mu.Unlock()
	for _, m := range box.queue {
		if slices.ContainsFunc(p.open, func(s started) bool { return s.send == nil && s.from == m.src }) {
			m.take()
		}
	}
	return box.arrived
}

func (m *message) take() {
	select {
	case <-m.taken:
	default:
		close(m.taken)
	}
}

// Recv implements coll.Peers.
func (p *Peer) Recv(ctx context.Context, buf []byte, from int) (int, error) {
	if err := errors.Join(p.operation(), p.inRange(from)); err != nil {
		return 0, err
	}
	poison(buf)
	return p.receive(ctx, buf, from)
}

// Own implements coll.Peers.
func (p *Peer) Own(ctx context.Context, steps []coll.Step) error {
	for i := range steps {
		if err := p.operation(); err != nil {
			return err
		}
		for {
			over, err := p.instance.Try(&steps[i], p.call)
			if err != nil {
				return err
			}
			if over {
				break
			}
			if runtime.Gosched(); ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

// Work implements coll.Peers.
func (p *Peer) Work(step *coll.Step) { p.instance.(coll.Worker).Work(step, p.call) }

// Drop implements coll.Peers.
func (p *Peer) Drop() {
	p.open = nil
	withdraw(p.instance, p.call)
}

// withdraw blocks until no other member uses the buffers of a call that failed.
func withdraw(x coll.Instance, c *coll.Call) {
	if w, ok := x.(coll.Withdrawer); ok {
		for !w.Withdraw(c) {
			runtime.Gosched()
		}
	}
}

func (p *Peer) receive(ctx context.Context, buf []byte, from int) (int, error) {
	box := &p.w.boxes[p.rank]
	for {
		p.takeStarted()
		m, arrived := box.take(from)
		if m != nil {
			n := copy(buf, m.data)
			if len(m.data) > len(buf) {
				return n, framework.ErrTruncate
			}
			return n, nil
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// take removes the first message of a rank, or returns what announces more.
func (b *mailbox) take(src int) (*message, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.queue, func(m *message) bool { return m.src == src })
	if i < 0 {
		return nil, b.arrived
	}
	m := b.queue[i]
	b.queue = slices.Delete(b.queue, i, i+1)
	m.take()
	return m, nil
}

// poison is what memory holds that nothing has been written to yet, so that reading it
// shows.
func poison(b []byte) {
	for i := range b {
		b[i] = 0xA5
	}
}
