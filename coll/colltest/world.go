// Package colltest is the kit for collective components: communicators in
// memory, and the cases that every component must pass.
//
// It stands on package coll alone, and uses neither PML nor transport.
package colltest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework"
)

// Options say how a World misbehaves within what the contract allows.
type Options struct {
	// Synchronous makes every Send wait until its message was received: an
	// algorithm that relies on buffering then deadlocks.
	Synchronous bool
	// FailRank's operation number FailAt (counted from 1) fails with errFault.
	// FailAt 0: none does.
	FailRank, FailAt int
}

// World is a communicator whose members are goroutines of this process.
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
	src, tag int
	data     []byte
	taken    chan struct{}
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

// Peer returns the member of that rank.
func (w *World) Peer(rank int) *Peer { return w.peers[rank] }

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

// Left says what an operation that has ended left behind: messages that nobody
// received, memory that was not released.
func (w *World) Left() error {
	for r, p := range w.peers {
		if n := p.scratch.Load(); n != 0 {
			return fmt.Errorf("rank %d has not released %d pieces of scratch memory", r, n)
		}
		if n := len(w.boxes[r].queue); n != 0 {
			return fmt.Errorf("rank %d left %d messages without receiving them", r, n)
		}
	}
	return nil
}

// Peer is one member of a World. It implements coll.Peers.
type Peer struct {
	w       *World
	rank    int
	ops     int
	scratch atomic.Int64 // pieces that are out
}

var _ coll.Peers = (*Peer)(nil)

// Rank returns the member's rank.
func (p *Peer) Rank() int { return p.rank }

// Size returns the number of members.
func (p *Peer) Size() int { return len(p.w.peers) }

// Send delivers a copy of buf.
func (p *Peer) Send(ctx context.Context, buf []byte, dst, tag int) error {
	if err := p.operation(ctx); err != nil {
		return err
	}
	m, err := p.post(buf, dst, tag)
	if err != nil {
		return err
	}
	return p.sent(ctx, m)
}

// Recv receives the first message from src with that tag.
func (p *Peer) Recv(ctx context.Context, buf []byte, src, tag int) (int, error) {
	if err := p.operation(ctx); err != nil {
		return 0, err
	}
	return p.receive(ctx, buf, src, tag)
}

// SendRecv does both at once.
func (p *Peer) SendRecv(ctx context.Context, send []byte, dst int, recv []byte, src, tag int) (int, error) {
	if err := p.operation(ctx); err != nil {
		return 0, err
	}
	m, err := p.post(send, dst, tag)
	if err != nil {
		return 0, err
	}
	n, err := p.receive(ctx, recv, src, tag)
	if err != nil {
		return n, err
	}
	return n, p.sent(ctx, m)
}

// poison is what scratch memory holds at first and at last, so that reading it
// unwritten, or after its release, shows.
const poison = 0xA5

// Scratch returns poisoned memory.
func (p *Peer) Scratch(n int) []byte {
	p.scratch.Add(1)
	b := make([]byte, n, (n+7)&^7)
	for i := range b {
		b[i] = poison
	}
	return b
}

// Release poisons b again.
func (p *Peer) Release(b []byte) {
	p.scratch.Add(-1)
	for i := range b {
		b[i] = poison
	}
}

// operation counts, and fails where the options say so.
func (p *Peer) operation(ctx context.Context) error {
	p.ops++
	if p.w.opt.FailAt == p.ops && p.w.opt.FailRank == p.rank {
		return errFault
	}
	return context.Cause(ctx)
}

func (p *Peer) post(buf []byte, dst, tag int) (*message, error) {
	if dst < 0 || dst >= p.Size() || tag < 0 || tag > coll.MaxTag {
		return nil, fmt.Errorf("rank %d sends to rank %d with tag %d, which is out of range: %w", p.rank, dst, tag, framework.ErrRank)
	}
	m := &message{src: p.rank, tag: tag, data: bytes.Clone(buf), taken: make(chan struct{})}
	box := &p.w.boxes[dst]
	box.mu.Lock()
	defer box.mu.Unlock()
	box.queue = append(box.queue, m)
	close(box.arrived)
	box.arrived = make(chan struct{})
	return m, nil
}

func (p *Peer) sent(ctx context.Context, m *message) error {
	if !p.w.opt.Synchronous {
		return nil
	}
	select {
	case <-m.taken:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *Peer) receive(ctx context.Context, buf []byte, src, tag int) (int, error) {
	if src < 0 || src >= p.Size() {
		return 0, fmt.Errorf("rank %d receives from rank %d: %w", p.rank, src, framework.ErrRank)
	}
	box := &p.w.boxes[p.rank]
	for {
		m, arrived := box.take(src, tag)
		if m != nil {
			close(m.taken)
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

// take removes the first message that matches, or returns what announces more.
func (b *mailbox) take(src, tag int) (*message, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.queue, func(m *message) bool { return m.src == src && m.tag == tag })
	if i < 0 {
		return nil, b.arrived
	}
	m := b.queue[i]
	b.queue = slices.Delete(b.queue, i, i+1)
	return m, nil
}
