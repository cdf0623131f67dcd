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

// Options select faults of a World within the contract.
type Options struct {
	// Synchronous sends complete only when their messages have been received. Algorithms that rely
	// on buffering deadlock.
	Synchronous bool
	// The operation with number FailAt, counted from 1, of rank FailRank fails with errFault. With
	// a FailAt of 0, none does.
	FailRank, FailAt int
}

// World is a communicator whose members are goroutines of this process. Each executes schedules
// inline.
type World struct {
	options   Options
	mailboxes []mailbox
	peers     []*Peer
}

type mailbox struct {
	mu sync.Mutex
	// Closed and replaced when a message arrives.
	newArrival chan struct{}
	messages   []*message
}

type message struct {
	src      int
	data     []byte
	released chan struct{}
}

// NewWorld returns a communicator of n members.
func NewWorld(n int, opt Options) *World {
	w := &World{options: opt, mailboxes: make([]mailbox, n)}
	for r := range n {
		w.mailboxes[r].newArrival = make(chan struct{})
		w.peers = append(w.peers, &Peer{world: w, rank: r})
	}
	return w
}

// Run calls f for each member in a goroutine of its own, and returns the errors by rank. The first
// error cancels the context of the others.
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

// CheckIdle returns an error for pending operations and unreceived messages.
func (w *World) CheckIdle() error {
	for r, p := range w.peers {
		if n := len(p.pendingRequests); n != 0 {
			return fmt.Errorf("rank %d has %d pending messages", r, n)
		}
		if n := len(w.mailboxes[r].messages); n != 0 {
			return fmt.Errorf("rank %d has %d unreceived messages", r, n)
		}
	}
	return nil
}

// Peer is one member of a World. It implements coll.Peers.
type Peer struct {
	world           *World
	rank            int
	operationCount  int
	pendingRequests []started

	// Instance of the algorithm, nil if it has none.
	instance coll.Instance
	call     *coll.Call
}

// started is a send, or a receive from rank from.
type started struct {
	sentMessage *message
	recvBuf     []byte
	sourceRank  int
}

var _ coll.Peers = (*Peer)(nil)

// Rank returns the member's rank.
func (p *Peer) Rank() int { return p.rank }

var errFault = errors.New("colltest: fault")

// countOperation counts operations. It returns the error of the options at theirs.
func (p *Peer) countOperation() error {
	if p.operationCount++; p.world.options.FailAt == p.operationCount && p.world.options.FailRank == p.rank {
		return errFault
	}
	return nil
}

func (p *Peer) checkRank(rank int) error {
	if rank < 0 || rank >= len(p.world.peers) || rank == p.rank {
		return fmt.Errorf("rank %d exchanges a message with rank %d: %w", p.rank, rank, framework.ErrRank)
	}
	return nil
}

// Send implements coll.Peers.
func (p *Peer) Send(buf []byte, to int) (done bool, err error) {
	if err := errors.Join(p.countOperation(), p.checkRank(to)); err != nil {
		return false, err
	}
	m := &message{src: p.rank, data: bytes.Clone(buf), released: make(chan struct{})}
	box := &p.world.mailboxes[to]
	box.mu.Lock()
	box.messages = append(box.messages, m)
	close(box.newArrival)
	box.newArrival = make(chan struct{})
	box.mu.Unlock()
	if p.world.options.Synchronous {
		p.pendingRequests = append(p.pendingRequests, started{sentMessage: m})
	}
	return !p.world.options.Synchronous, nil
}

// StartRecv implements coll.Peers. The message is matched in Finish. No other receive from that
// rank intervenes.
func (p *Peer) StartRecv(buf []byte, from int) error {
	if err := errors.Join(p.countOperation(), p.checkRank(from)); err != nil {
		return err
	}
	poison(buf)
	p.pendingRequests = append(p.pendingRequests, started{recvBuf: buf, sourceRank: from})
	return nil
}

// Finish implements coll.Peers. A synchronous sender may wait for any started receive, so that a
// wait for a send releases the senders of all arrived messages.
func (p *Peer) Finish(ctx context.Context) (int, error) {
	if len(p.pendingRequests) == 0 {
		return 0, errors.New("colltest: no pending operation")
	}
	first := p.pendingRequests[0]
	p.pendingRequests = p.pendingRequests[1:]
	if first.sentMessage == nil {
		return p.receive(ctx, first.recvBuf, first.sourceRank)
	}
	for {
		arrived := p.releaseSenders()
		select {
		case <-first.sentMessage.released:
			return 0, nil
		case <-arrived:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// releaseSenders releases the senders of messages for which receives have started. It copies no data.
func (p *Peer) releaseSenders() <-chan struct{} {
	box := &p.world.mailboxes[p.rank]
	box.mu.Lock()
	defer box.mu.Unlock()
	for _, m := range box.messages {
		if slices.ContainsFunc(p.pendingRequests, func(s started) bool { return s.sentMessage == nil && s.sourceRank == m.src }) {
			m.release()
		}
	}
	return box.newArrival
}

func (m *message) release() {
	select {
	case <-m.released:
	default:
		close(m.released)
	}
}

// Recv implements coll.Peers.
func (p *Peer) Recv(ctx context.Context, buf []byte, from int) (int, error) {
	if err := errors.Join(p.countOperation(), p.checkRank(from)); err != nil {
		return 0, err
	}
	poison(buf)
	return p.receive(ctx, buf, from)
}

// Own implements coll.Peers.
func (p *Peer) Own(ctx context.Context, steps []coll.Step) error {
	for i := range steps {
		if err := p.countOperation(); err != nil {
			return err
		}
		for {
			done, err := p.instance.PollStep(&steps[i], p.call)
			if err != nil {
				return err
			}
			if done {
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
	p.pendingRequests = nil
	withdraw(p.instance, p.call)
}

// withdraw blocks until no other member uses the buffers of a failed call.
func withdraw(x coll.Instance, c *coll.Call) {
	if w, ok := x.(coll.Withdrawer); ok {
		for !w.Withdraw(c) {
			runtime.Gosched()
		}
	}
}

func (p *Peer) receive(ctx context.Context, buf []byte, from int) (int, error) {
	box := &p.world.mailboxes[p.rank]
	for {
		p.releaseSenders()
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

// take removes the first message of a rank. Without one, it returns a channel that is closed at the
// next arrival.
func (b *mailbox) take(src int) (*message, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.messages, func(m *message) bool { return m.src == src })
	if i < 0 {
		return nil, b.newArrival
	}
	m := b.messages[i]
	b.messages = slices.Delete(b.messages, i, i+1)
	m.release()
	return m, nil
}

// poison fills memory without contents, so that a read before a write is noticed.
func poison(b []byte) {
	for i := range b {
		b[i] = 0xA5
	}
}
