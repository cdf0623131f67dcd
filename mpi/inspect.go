package mpi

import (
	"fmt"
	"os"
	"strings"

	"github.com/ferrympi/ferry/pml"
)

// Stats are counts of this process, over all sessions that are open now.
type Stats struct {
	Peers []PeerStats // processes that messages went to or came from
}

// PeerStats counts messages between this process and another, collectives
// included, since the first of the open sessions was opened.
type PeerStats struct {
	Proc                     Proc
	Transport                string // in use; empty if none yet
	Sent, Received           uint64 // messages
	SentBytes, ReceivedBytes uint64 // payload, in bytes
	Unexpected               uint64 // messages that came before their receive
	Dropped                  uint64 // messages for communicators that were closed
}

// Stats returns counts per peer; none once the session is closed.
func (s *Session) Stats() Stats {
	var out Stats
	if s.enter() != nil {
		return out
	}
	e := s.engine
	for _, m := range e.modules {
		for _, p := range m.Stats() {
			out.Peers = append(out.Peers, PeerStats{
				Proc: e.worlds.Proc(p.ID), Transport: p.Transport,
				Sent: p.Sent, Received: p.Received, SentBytes: p.SentBytes, ReceivedBytes: p.RecvBytes,
				Unexpected: p.Unexpected, Dropped: p.Dropped,
			})
		}
	}
	return out
}

// Inspection is a snapshot of a communicator's queues, for people who debug a
// hang: receives that wait, messages that wait, sends that are not complete.
type Inspection = pml.CommInspection

// Inspect returns a snapshot of the communicator's queues; ErrClosed after Close.
func (c *Comm) Inspect() (Inspection, error) {
	if c.closed.Load() {
		return Inspection{}, c.errClosed()
	}
	for _, x := range c.module.Inspect().Comms {
		if x.ID == c.spec.ID {
			x.Name = c.Name()
			return x, nil
		}
	}
	return Inspection{ID: c.spec.ID, Local: c.spec.Local, Name: c.Name()}, nil
}

// dump writes the queues of all communicators to standard error: the launcher
// asked for it, because the run hangs or a user wants to know. It is an upcall
// and must not block, and standard error may.
func (e *engine) dump() {
	var b strings.Builder
	fmt.Fprintf(&b, "ferry: %s: state of the communicators\n", e.identity.Proc)
	for _, m := range e.modules {
		writeInspection(&b, m.Inspect())
	}
	go os.Stderr.WriteString(b.String())
}

func writeInspection(b *strings.Builder, x pml.Inspection) {
	for _, c := range x.Comms {
		fmt.Fprintf(b, "  communicator %s", c.ID)
		if c.Name != "" {
			fmt.Fprintf(b, " %q", c.Name)
		}
		fmt.Fprintf(b, ", local id %s\n", c.Local)
		writePending(b, "receives that wait", "from", c.Posted)
		writePending(b, "messages that wait", "from", c.Unexpected)
		writePending(b, "sends that wait", "to", c.Sends)
	}
	if x.Parked > 0 {
		fmt.Fprintf(b, "  %d messages for communicators that don't exist here yet\n", x.Parked)
	}
}

// most is how many entries of a queue a dump shows: a long one says what it has
// to say with its head.
const most = 20

func writePending(b *strings.Builder, title, word string, list []pml.Pending) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(b, "    %d %s:\n", len(list), title)
	for i, p := range list {
		if i == most {
			fmt.Fprintf(b, "      and %d more\n", len(list)-most)
			return
		}
		peer, tag := fmt.Sprint(p.Peer), fmt.Sprint(p.Tag)
		if p.Peer == AnySource {
			peer = "any rank"
		}
		if p.Tag == AnyTag {
			tag = "any"
		}
		fmt.Fprintf(b, "      %s %s, tag %s, %d bytes, %s, %s\n", word, peer, tag, p.Bytes, planeName(p.Plane), p.State)
	}
}

func planeName(p pml.Plane) string {
	switch p {
	case pml.PointToPoint:
		return "point to point"
	case pml.Collective:
		return "collective"
	}
	return "control"
}
