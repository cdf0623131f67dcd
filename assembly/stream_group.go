package assembly

import (
	"context"

	"github.com/ferrympi/ferry/assembly/wireup"
	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// StreamMember is a member of a communicator of streams.
type StreamMember struct {
	Process      framework.Proc
	ProcessNonce uint64
	// 0 for the process itself.
	StreamNumber int
}

// StreamGroup is the creation of a communicator with streams among its members. All members pass equal values, except for Rank.
type StreamGroup struct {
	Members []StreamMember
	Rank    int
	ID      cid.Extended
	Policy  cid.Policy
	// Exchange returns the bytes of all members. It is collective.
	Exchange func(ctx context.Context, own []byte) ([][]byte, error)
}

// WireUpStreams decides on the PML and the ids of a communicator as WireUp does. The cards and the capabilities are exchanged by g.
// The assembly is that of the stream, or of the process, which this member passes. The caller keeps the members (HoldPeers) until it has
// made the communicator.
func (a *Assembly) WireUpStreams(ctx context.Context, g *StreamGroup) (m PML, spec pml.CommSpec, err error) {
	defer a.enterWireUp()()
	own, err := a.currentCard()
	if err != nil {
		return m, spec, err
	}
	var body wireup.Payload
	used, err := a.encodePayload(own, body)
	if err != nil {
		return m, spec, err
	}
	table := a.pmls[0].CIDs()
	ids := table.WithholdCandidates(g.Policy, len(g.Members), bootstrap.MaxPayload-len(used)-wireup.PayloadFrame)
	defer table.Release(ids) // No effect after the candidates are settled.
	body.IDs = ids.Bytes()
	encoded, err := a.encodePayload(own, body)
	if err != nil {
		return m, spec, err
	}
	x := construction{ownRank: g.Rank, commID: g.ID, candidateIDs: ids}
	processes := make([]framework.Proc, len(g.Members))
	for i, m := range g.Members {
		processes[i] = m.Process
		x.group, x.processNonces = append(x.group, m.Process.Stream(m.StreamNumber)), append(x.processNonces, m.ProcessNonce)
		// A member that has the cards of all may connect before this process has them. Transports refuse unknown worlds.
		a.env.Worlds.ID(x.group[i])
	}
	all, err := g.Exchange(ctx, encoded)
	if err != nil {
		return m, spec, err
	}
	if m, spec, err = a.decideComm(ctx, &x, all); err != nil { // The others may have the communicator.
		a.refuse(g.ID, processes, err)
	}
	return m, spec, err
}

// addStreamMember records a member of a communicator that may be a stream, before its card is known. process is the nonce of its process.
func (a *Assembly) addStreamMember(incarnation framework.Incarnation, p framework.Proc, process uint64) {
	if _, number := p.Process(); number == 0 || incarnation == a.env.Self {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.streams.peerStreams == nil {
		a.streams.peerStreams = map[framework.ProcID]streamPeer{}
	}
	a.streams.peerStreams[incarnation.ID] = streamPeer{incarnation.Nonce, process}
}

// catchUp applies the end of a member's process to the member, after its card was received. The process may have ended before this assembly
// had its name or its nonce, or before the stream was open. The process of this stream knows that process, and keeps the record of its
// end until the communicator is made (HoldPeers), even if only communicators of streams have it.
func (a *Assembly) catchUp(incarnation framework.Incarnation, p framework.Proc, process uint64) {
	if incarnation == a.env.Self {
		return
	}
	of, _ := p.Process()
	a.upcalls.Lock()
	defer a.upcalls.Unlock()
	if a.upcalls.isClosing {
		return
	}
	known := a
	if a.ownerProcess != nil {
		known = a.ownerProcess
	}
	reason, isDead, hasLeft := known.endOfProcess(of, process)
	switch {
	case isDead:
		a.peerFailed(incarnation, reason)
	case hasLeft:
		a.leaveOnce(incarnation)
	}
}

// endOfProcess returns the end of an incarnation of a process that the bootstrap has reported.
func (a *Assembly) endOfProcess(p framework.Proc, nonce uint64) (reason string, isDead, hasLeft bool) {
	incarnation := framework.Incarnation{ID: a.env.Worlds.ID(p), Nonce: nonce}
	a.mu.Lock()
	defer a.mu.Unlock()
	_, hasLeft = a.leftIncarnations[incarnation]
	for _, d := range a.failedIncarnations {
		if d.Incarnation == incarnation {
			return d.Reason, true, hasLeft
		}
	}
	return "", false, hasLeft
}
