package mpi

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/assembly"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// Stats are counts of this process, over all sessions that are open now.
type Stats struct {
	// Peers are the processes that messages went to or came from. Messages between goroutine ranks of
	// this process have an entry of their own, with the transport "threads".
	Peers []PeerStats
}

// PeerStats counts messages between this process and another, collectives
// included, since the first of the open sessions was opened.
type PeerStats struct {
	Proc Proc
	// Of this process; 0: its own stack.
	Stream int
	// Of Proc; 0: its own stack.
	PeerStream int
	// As in events of WithHooks. A process that replaces another has a different one.
	Incarnation framework.Incarnation
	// In use. Empty if there is none yet.
	Transport      string
	Sent, Received uint64 // Messages.
	// Payload in bytes.
	SentBytes, ReceivedBytes uint64
	// Messages that arrived before their receive.
	Unexpected uint64
	// Messages for closed communicators.
	Dropped uint64
	// Connections established again after a loss.
	Reconnects uint64
	// Retransmitted frames of the transport.
	Resent uint64
}

// Stats returns counts per peer, for each open stream apart; none once the session is closed. An ended peer has none after its last communicator.
func (s *Session) Stats() Stats {
	if s.enter() != nil {
		return Stats{}
	}
	return Stats{Peers: s.process.peerStats()}
}

// peerStats returns the counts of this process and of its streams.
func (e *process) peerStats() []PeerStats {
	all := peerStats(e.Assembly)
	for _, stream := range e.Streams() {
		stream.WhileOpen(func() { all = append(all, peerStats(stream)...) })
	}
	if own, any := e.rankStats(); any {
		all = append(all, own)
	}
	return all
}

// peerStats returns the counts of a process's own stack, or of a stream.
func peerStats(a *assembly.Assembly) (all []PeerStats) {
	for _, m := range a.Upper() {
		for _, p := range m.Stats() {
			proc, stream := a.Env().Worlds.Proc(p.Peer.ID).Process()
			all = append(all, PeerStats{
				Proc: proc, Stream: a.Stream(), PeerStream: stream, Incarnation: p.Peer, Transport: p.Transport,
				Sent: p.Sent, Received: p.Received, SentBytes: p.SentBytes, ReceivedBytes: p.RecvBytes,
				Unexpected: p.Unexpected, Dropped: p.Dropped, Reconnects: p.Reconnects, Resent: p.Resent,
			})
		}
	}
	return all
}

// Inspection is a snapshot of a communicator's queues for debugging a hang. It has posted receives, unexpected messages and incomplete sends.
type Inspection = pml.CommInspection

// Inspect returns a snapshot of the communicator's queues in this process. If the network matches messages, it does not include messages without a
// posted receive. It changes no state and does not wait for messages. It returns ErrTimeout if a transport blocks the process, and ErrClosed after
// Close.
func (c *Comm) Inspect() (Inspection, error) {
	if c.isClosed() {
		return Inspection{}, c.errClosed()
	}
	if c.threadRank != nil {
		return c.inspectThreadRank()
	}
	all, err := c.session.process.inspect(c.module)
	if err != nil {
		return Inspection{}, err
	}
	for _, x := range all.Comms {
		if x.ID == c.spec.ID && x.Endpoint == 0 {
			x.Name = c.Name()
			return x, nil
		}
	}
	return Inspection{ID: c.spec.ID, Local: c.spec.Local, Name: c.Name()}, nil
}

// inspect returns the pending operations of a PML and those in shared memory of members.
func (e *process) inspect(m assembly.PML) (pml.Inspection, error) {
	x, err := m.Inspect(context.Background())
	if err != nil {
		return x, err
	}
	if err := e.addPendingSteps(context.Background(), &x, func(c *Comm) bool { return c.module.Module == m.Module }); err != nil {
		return x, err
	}
	return x, e.addPartitions(context.Background(), &x, func(c *Comm) bool { return c.threadRank == nil && c.module.Module == m.Module })
}

// writeInspection writes the communicators where something waits. comms has those
// that are open.
func writeInspection(b *strings.Builder, x pml.Inspection, comms map[cid.EndpointID]*Comm) {
	slices.SortFunc(x.Comms, func(p, q pml.CommInspection) int {
		return cmp.Or(cmp.Compare(p.ID.Base, q.ID.Base), cmp.Compare(p.ID.Sub, q.ID.Sub), cmp.Compare(p.Endpoint, q.Endpoint))
	})
	quiet, shown, more := 0, 0, 0
	for _, i := range x.Comms {
		if len(i.Posted)+len(i.Unexpected)+len(i.Sends) == 0 {
			quiet++
			continue
		}
		if shown++; shown > mostComms {
			more++
			continue
		}
		c := comms[cid.EndpointID{Extended: i.ID, Endpoint: i.Endpoint}]
		fmt.Fprintf(b, "  communicator %s", i.ID)
		if c != nil {
			if name := c.Name(); name != "" {
				fmt.Fprintf(b, " %q", name)
			}
			fmt.Fprintf(b, ": rank %d of %d", c.rank, c.size)
			if c.threadRank != nil {
				fmt.Fprintf(b, " (goroutine %d)", c.threadRank.endpoint)
			}
			if c.session.ownerStream != nil {
				fmt.Fprintf(b, " (%v)", c.session.ownerStream)
			}
		} else {
			b.WriteString(": closed")
		}
		if c == nil || c.threadRank == nil {
			fmt.Fprintf(b, ", local id %s", i.Local)
		}
		b.WriteByte('\n')
		writePending(b, count(len(i.Posted), "receive waits", "receives wait"), "from", i.Posted, c)
		writePending(b, count(len(i.Unexpected), "message that nobody has received", "messages that nobody has received"), "from", i.Unexpected, c)
		writePending(b, count(len(i.Sends), "send is not complete", "sends are not complete"), "to", i.Sends, c)
	}
	if more > 0 {
		fmt.Fprintf(b, "  and %s in which something waits\n", count(more, "more communicator", "more communicators"))
	}
	if quiet > 0 {
		fmt.Fprintf(b, "%s in which nothing waits\n", count(quiet, "communicator", "communicators"))
	}
	if x.EarlyArrivals > 0 {
		fmt.Fprintf(b, "  %s for communicators that don't exist here yet\n", count(x.EarlyArrivals, "message", "messages"))
	}
	for _, note := range x.Notes {
		fmt.Fprintf(b, "  %s\n", note)
	}
}

// Limits of a report. The first entries show the cause of a hang.
const (
	most      = 20  // Entries of a queue.
	mostComms = 200 // Communicators.
)

func writePending(b *strings.Builder, title, word string, list []pml.Pending, c *Comm) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(b, "    %s:\n", title)
	for i, p := range list {
		if i == most {
			fmt.Fprintf(b, "      and %d more\n", len(list)-most)
			return
		}
		tag := fmt.Sprint(p.Tag)
		if p.Tag == AnyTag {
			tag = "any"
		}
		state := p.State
		if p.Transfer != "" {
			state += " (" + p.Transfer + ")"
		}
		fmt.Fprintf(b, "      %s %s, tag %s, %s, %s, %s\n", word, peerName(c, p.Peer), tag, count(int(p.Bytes), "byte", "bytes"), planeNames[p.Plane], state)
	}
}

// count is "one byte", "2 bytes".
func count(n int, one, many string) string {
	if n == 1 {
		return "one " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// peerName names a rank, with the process if that has another number, and with the goroutine of the
// process if it is one.
func peerName(c *Comm, rank int) string {
	switch {
	case rank == AnySource:
		return "any rank"
	case c == nil || rank < 0 || rank >= c.size || c.threadRank == nil && int(c.group.members.at(rank).Rank) == rank:
		return fmt.Sprint(rank)
	case c.threadRank != nil:
		return fmt.Sprintf("%d (goroutine %d of %s of the job)", rank, c.group.members.at(rank).endpoint, c.group.members.at(rank).Proc)
	}
	return fmt.Sprintf("%d (%s of the job)", rank, c.group.members.at(rank).Proc)
}

var planeNames = [pml.Planes]string{pml.PointToPoint: "point to point", pml.Collective: "collective", pml.Control: "control"}
