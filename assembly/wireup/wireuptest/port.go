package wireuptest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ferrympi/ferry/assembly/wireup"
	"github.com/ferrympi/ferry/framework"
)

// port is the Port of a process.
type port struct {
	*process
	// Key of the levels.
	level0 uint64
}

func (p *port) Ended() error {
	if p.isCanceled {
		return context.Canceled
	}
	return nil
}

func (p *port) Construct(l wireup.Level, faults wireup.Faults, deadline time.Duration) (wireup.Comm, [][]byte, error) {
	p.step()
	payload := p.world.Payload(p.member)
	if l.Number > 0 {
		payload.GroupIDs, payload.GroupEnded = nil, nil
	}
	payload.Faults = faults
	b, err := payload.Encode()
	if err != nil {
		return nil, nil, err
	}
	p.world.trace("%d: level %d of %d%s", p.member, l.Number, l.Members, describe(faults))
	if len(l.Members) == 1 {
		return nil, [][]byte{b}, nil
	}
	return p.construct(l, p.level0, b, deadline)
}

func describe(fs wireup.Faults) string {
	s := ""
	for _, f := range fs {
		s += fmt.Sprintf(", fault of %d", f.Rank)
	}
	return s
}

func (p *port) Draw() (uint64, error) {
	p.step()
	if p.isCanceled {
		return 0, context.Canceled
	}
	p.world.drawn++
	return p.world.drawn, nil
}

func (p *port) Share(table []byte) (shared, place []byte, err error) {
	p.step()
	if p.world.Unshared {
		return nil, nil, errors.New("no room")
	}
	p.clock += p.world.Machine.Node.bytes(len(table))
	p.world.shared[p.member] = table
	p.world.trace("%d: shares", p.member)
	return table, []byte("place"), nil
}

func (p *port) Open(root wireup.Level, place []byte) ([]byte, error) {
	p.step()
	table := p.world.shared[root.Members[0]]
	if p.world.Unreachable || table == nil {
		return nil, errors.New("no such memory")
	}
	return table, nil
}

func (p *port) Hide() {
	if p.world.shared[p.member] != nil {
		p.world.trace("%d: hides", p.member)
	}
	delete(p.world.shared, p.member)
}

func (p *port) Accept(t *wireup.Table) error {
	p.step()
	if p.world.Accept == nil {
		return nil
	}
	return p.world.Accept(p.member, t)
}

func (p *port) Refuse(id uint64, why error) {
	p.world.trace("%d: refuses %d", p.member, id)
	p.outcome.Refused = id
}

// comm is the communicator of a level.
type comm struct {
	// Its Self has no meaning.
	level wireup.Level
	boxes map[[2]int]*box
}

// box is the messages from one member to another one.
type box struct {
	arrived []delivery
	flying  int
	// Arrival of the last message, before which no other one arrives.
	last time.Duration
}

type delivery struct {
	bytes []byte
	depth int
	cost  time.Duration // Of the receiver.
}

// end is the Comm of a process.
type end struct {
	*comm
	process *process
	self    int
}

func (c *comm) box(from, to int) *box {
	b := c.boxes[[2]int{from, to}]
	if b == nil {
		b = &box{}
		c.boxes[[2]int{from, to}] = b
	}
	return b
}

func (e *end) Send(to int, message []byte) {
	p := e.process
	p.step()
	n := p.world.Machine.Network
	if e.level.Number == 0 {
		n = p.world.Machine.Node
	}
	p.world.trace("%d -> %d: %v", p.member, e.level.Members[to], wireup.KindOf(message))
	p.recordPeer(e.level.Members[to])
	p.counts.Messages++
	p.counts.MessageBytes += int64(len(message))
	p.clock += n.Overhead
	begin := max(p.clock, p.free)
	p.free = begin + max(n.Gap, n.bytes(len(message)))
	if p.world.Alter != nil {
		message = p.world.Alter(p.member, e.level.Members[to], message)
	}
	b := e.box(e.self, to)
	b.last = max(b.last, begin+p.world.latency(n)+n.bytes(len(message)))
	b.flying++
	d := delivery{bytes: message, depth: p.depth + 1, cost: n.Overhead}
	receiver := p.world.procs[e.level.Members[to]]
	at := b.last
	p.world.after(at, func() {
		b.flying--
		b.arrived = append(b.arrived, d)
		receiver.wake(at)
	})
}

func (e *end) Receive(from int, deadline time.Duration, isCancelable bool) ([]byte, error) {
	p := e.process
	p.step()
	b, sender := e.box(from, e.self), p.world.procs[e.level.Members[from]]
	isExpired := p.wait(deadline, func() bool {
		return len(b.arrived) > 0 || sender.isReported && b.flying == 0 || isCancelable && p.isCanceled
	})
	switch {
	case isCancelable && p.isCanceled:
		return nil, context.Canceled
	case len(b.arrived) > 0:
		d := b.arrived[0]
		b.arrived = b.arrived[1:]
		p.recordPeer(e.level.Members[from])
		p.clock += d.cost
		p.depth = max(p.depth, d.depth)
		return d.bytes, nil
	case isExpired:
		return nil, context.DeadlineExceeded
	}
	return nil, &framework.ProcFailedError{Ranks: []int{from}, Cause: "killed"}
}

func (e *end) Close() {}
