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
	// See wireup.Layout.Key.
	levelKey uint64
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
	return p.construct(l, p.levelKey, b, deadline)
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
	p.world.lastContextID++
	return p.world.lastContextID, nil
}

func (p *port) Share(table []byte) (shared, place []byte, err error) {
	p.step()
	if p.world.HasNoSharedMemory {
		return nil, nil, errors.New("no room")
	}
	p.clock += p.world.Machine.Node.bytes(len(table))
	p.world.tableByRoot[p.member] = table
	p.world.trace("%d: shares", p.member)
	return table, []byte("place"), nil
}

func (p *port) Open(root wireup.Level, place []byte) ([]byte, error) {
	p.step()
	table := p.world.tableByRoot[root.Members[0]]
	if p.world.CannotOpenMemory || table == nil {
		return nil, errors.New("no such memory")
	}
	return table, nil
}

func (p *port) Hide() {
	if p.world.tableByRoot[p.member] != nil {
		p.world.trace("%d: hides", p.member)
	}
	delete(p.world.tableByRoot, p.member)
}

func (p *port) Accept(t *wireup.Table) error {
	p.step()
	if p.world.AcceptTable == nil {
		return nil
	}
	return p.world.AcceptTable(p.member, t)
}

func (p *port) Refuse(id uint64, why error) {
	p.world.trace("%d: refuses %d", p.member, id)
	p.outcome.RefusedID = id
}

// comm is the communicator of a level.
type comm struct {
	// Its Self has no meaning.
	level     wireup.Level
	boxByEnds map[[2]int]*box
}

// box is the messages from one member to another one.
type box struct {
	arrivedMessages []delivery
	inFlightCount   int
	// No other message arrives before it.
	lastArrival time.Duration
}

type delivery struct {
	messageBytes []byte
	chainDepth   int
	receiveCost  time.Duration
}

// end is the Comm of a process.
type end struct {
	*comm
	process   *process
	selfIndex int
}

func (c *comm) box(from, to int) *box {
	b := c.boxByEnds[[2]int{from, to}]
	if b == nil {
		b = &box{}
		c.boxByEnds[[2]int{from, to}] = b
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
	p.counts.MessageCount++
	p.counts.MessageBytes += int64(len(message))
	p.clock += n.Overhead
	begin := max(p.clock, p.networkFreeAt)
	p.networkFreeAt = begin + max(n.Gap, n.bytes(len(message)))
	if p.world.AlterMessage != nil {
		message = p.world.AlterMessage(p.member, e.level.Members[to], message)
	}
	b := e.box(e.selfIndex, to)
	b.lastArrival = max(b.lastArrival, begin+p.world.latency(n)+n.bytes(len(message)))
	b.inFlightCount++
	d := delivery{messageBytes: message, chainDepth: p.chainDepth + 1, receiveCost: n.Overhead}
	receiver := p.world.procs[e.level.Members[to]]
	at := b.lastArrival
	p.world.after(at, func() {
		b.inFlightCount--
		b.arrivedMessages = append(b.arrivedMessages, d)
		receiver.wake(at)
	})
}

func (e *end) Receive(from int, deadline time.Duration, isCancelable bool) ([]byte, error) {
	p := e.process
	p.step()
	b, sender := e.box(from, e.selfIndex), p.world.procs[e.level.Members[from]]
	isExpired := p.wait(deadline, func() bool {
		return len(b.arrivedMessages) > 0 || sender.isReported && b.inFlightCount == 0 || isCancelable && p.isCanceled
	})
	switch {
	case isCancelable && p.isCanceled:
		return nil, context.Canceled
	case len(b.arrivedMessages) > 0:
		d := b.arrivedMessages[0]
		b.arrivedMessages = b.arrivedMessages[1:]
		p.recordPeer(e.level.Members[from])
		p.clock += d.receiveCost
		p.chainDepth = max(p.chainDepth, d.chainDepth)
		return d.messageBytes, nil
	case isExpired:
		return nil, context.DeadlineExceeded
	}
	return nil, &framework.ProcFailedError{Ranks: []int{from}, Cause: "killed"}
}

func (e *end) Close() {}
