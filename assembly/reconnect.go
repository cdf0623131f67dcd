package assembly

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ferrympi/ferry/assembly/wireup"
	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// Two processes exchange no messages on their present communicators after one has disconnected the other. With the next communicator that
// they create they reconnect. Both begin a new epoch with the present cards, because a transport may have been opened again, or another one
// may take its place.
//
// Neither may send in the new epoch before the other has ended the old one. Each member of a new communicator therefore lists the members that
// it is disconnected from. If any list is not empty, all members make a second construct, which completes when all have ended their old epochs.
// The bootstrap may report a disconnect of an old epoch late. In the second construct each member publishes the number of its disconnects in
// the old epoch, and the receiver attributes as many reports to that epoch.

// epochState is the epoch of the connection between two processes, with the disconnects in it and in the previous one.
type epochState struct {
	// Number of reconnects.
	epoch uint32
	// Of the present epoch.
	disconnectsByUs, disconnectsByPeer int
	previous                           struct {
		byUs, byPeer int
		isAwaited    bool
	}
}

// lateReportTimeout limits the wait for the report of a disconnect of the previous epoch. A busy bootstrap may lose the report.
const lateReportTimeout = 2 * time.Second

// currentCard returns the card of this process with its present addresses.
func (a *Assembly) currentCard() (card, error) {
	a.cardMu.Lock() // Editions must follow the order of the cards.
	defer a.cardMu.Unlock()
	_, now, err := encodeCard(a.pmls, a.Card())
	if err == nil && !bytes.Equal(now, a.ownCard.encodedCard) {
		a.ownCard = card{now, a.ownCard.edition + 1}
	}
	return a.ownCard, err
}

// disconnectedMembers returns the members of a group that this process is disconnected from. It is empty under a bootstrap that requires all processes
// for each construct, because processes do not reconnect there.
func (a *Assembly) disconnectedMembers(group []framework.Proc) (all []wireup.Ended) {
	if _, everyone := framework.As[bootstrap.Bystander](a.client); everyone {
		return nil
	}
	for _, m := range a.pmls {
		r, ok := framework.As[pml.Reconnector](m.Module)
		if !ok {
			continue
		}
		for _, incarnation := range r.EndedPeers() {
			rank := slices.Index(group, a.env.Worlds.Proc(incarnation.ID))
			a.mu.Lock()
			known, ok := a.peers.get(incarnation)
			a.mu.Unlock()
			if ok && rank >= 0 && len(all) < wireup.MaxEnded {
				all = append(all, wireup.Ended{Rank: uint32(rank), Nonce: incarnation.Nonce, Epoch: known.epoch})
			}
		}
	}
	return all
}

// countDisconnect counts a disconnect by this process. The engine's lock is held.
func (a *Assembly) countDisconnect(peer framework.Incarnation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if known, ok := a.peers.get(peer); ok {
		known.disconnectsByUs++
		a.peers.set(peer, known)
	}
}

// disconnectedBy reports that a peer has disconnected this process, unless the report is of the previous epoch. Streams are connected
// independently of their processes. upcalls is locked.
func (a *Assembly) disconnectedBy(ev bootstrap.Event) {
	for _, incarnation := range a.incarnationsOf(ev) {
		a.mu.Lock()
		known, ok := a.peers.get(incarnation)
		if isPast := ok && known.previous.isAwaited; isPast {
			known.previous.byPeer++
			a.peers.set(incarnation, known)
			a.mu.Unlock()
			continue
		} else if ok {
			known.disconnectsByPeer++
			known.hasEnded = true
			known.leaveTable() // The record stays, because the process is alive.
			a.peers.set(incarnation, known)
		}
		a.mu.Unlock()
		a.enqueue(upcall{peerEvent: ev.PeerEvent(incarnation), connEpoch: known.epoch})
	}
}

// deliverEnd notifies a PML of a peer that has left or is unreachable, unless the two have reconnected since.
func (a *Assembly) deliverEnd(m PML, n upcall) {
	if errors.Is(n.peerEvent.Err, framework.ErrPeerDisconnected) {
		a.learnMu.Lock()
		defer a.learnMu.Unlock()
		a.mu.Lock()
		known, _ := a.peers.get(n.peerEvent.Peer)
		a.mu.Unlock()
		if known.epoch != n.connEpoch {
			return
		}
	}
	m.PeerChanged(n.peerEvent)
}

// reconnectMembers reconnects this process with the members of a new communicator that are disconnected from it, in either direction. All members call it.
func (a *Assembly) reconnectMembers(ctx context.Context, group []framework.Proc, rank int, id uint64, payloads []wireup.Payload) error {
	isPresent := func(e wireup.Ended) bool { return int(e.Rank) < len(group) && payloads[e.Rank].Nonce == e.Nonce }
	if !slices.ContainsFunc(payloads, func(p wireup.Payload) bool { return slices.ContainsFunc(p.Ended, isPresent) }) {
		return nil
	}
	pairs := map[int]framework.Incarnation{}
	for i, times := range a.disconnectedPairs(group, rank, payloads) {
		pairs[i] = framework.Incarnation{ID: a.env.Worlds.ID(group[i]), Nonce: payloads[i].Nonce}
		a.beginEpoch(pairs[i], times)
	}
	byPeer, err := a.exchangeDisconnects(ctx, group, rank, id, pairs)
	for i, incarnation := range pairs {
		a.awaitPastDisconnects(ctx, incarnation, byPeer[i])
	}
	return err
}

// exchangeDisconnects makes the second construct. It returns the number of disconnects by each peer of pairs in the previous epoch.
func (a *Assembly) exchangeDisconnects(ctx context.Context, group []framework.Proc, rank int, id uint64, pairs map[int]framework.Incarnation) (map[int]int, error) {
	mine := make([]wireup.Ended, 0, len(pairs))
	a.mu.Lock()
	for i, incarnation := range pairs {
		if len(mine) == wireup.MaxEnded {
			break
		}
		known, _ := a.peers.get(incarnation)
		mine = append(mine, wireup.Ended{Rank: uint32(i), Nonce: incarnation.Nonce, Epoch: uint32(known.previous.byUs)})
	}
	a.mu.Unlock()
	body, err := wireup.EncodeEnded(mine)
	if err != nil {
		return nil, err
	}
	made, err := a.Construct(ctx, group, fmt.Sprintf("reconnect %x", id), body)
	if err != nil {
		return nil, err
	}
	byPeer := map[int]int{}
	for i := range pairs {
		theirs, err := wireup.DecodeEnded(made.Payloads[i])
		if err != nil {
			return byPeer, badMember(group[i], err)
		}
		for _, e := range theirs {
			if int(e.Rank) == rank && e.Nonce == a.env.Self.Nonce {
				byPeer[i] = int(e.Epoch)
			}
		}
	}
	return byPeer, nil
}

// disconnectedPairs returns the members that this process is disconnected from, in either direction, with the epoch of the connection.
func (a *Assembly) disconnectedPairs(group []framework.Proc, rank int, payloads []wireup.Payload) map[int]uint32 {
	pairs := map[int]uint32{}
	for _, e := range payloads[rank].Ended {
		if i := int(e.Rank); i < len(group) && i != rank && payloads[i].Nonce == e.Nonce {
			pairs[i] = e.Epoch
		}
	}
	for i, p := range payloads {
		for _, e := range p.Ended {
			if i != rank && int(e.Rank) == rank && e.Nonce == a.env.Self.Nonce {
				pairs[i] = max(pairs[i], e.Epoch)
			}
		}
	}
	return pairs
}

// beginEpoch begins a new epoch with an incarnation, unless another communicator has begun it.
func (a *Assembly) beginEpoch(incarnation framework.Incarnation, times uint32) {
	a.learnMu.Lock()
	defer a.learnMu.Unlock()
	a.mu.Lock()
	known, _ := a.peers.get(incarnation) // Empty if its card has never come.
	a.mu.Unlock()
	if known.epoch > times {
		return
	}
	a.env.Logger.Info("reconnected with a process after a disconnect", "proc", a.env.Worlds.Proc(incarnation.ID).String())
	for _, m := range a.pmls {
		if r, ok := framework.As[pml.Reconnector](m.Module); ok {
			r.Reconnect(incarnation)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	known, _ = a.peers.get(incarnation)
	known.previous.byUs, known.previous.byPeer, known.previous.isAwaited = known.disconnectsByUs, known.disconnectsByPeer, true
	known.epoch, known.disconnectsByUs, known.disconnectsByPeer = times+1, 0, 0
	known.encodedCard, known.cardTable, known.hasEnded = nil, nil, false
	a.peers.set(incarnation, known)
}

// awaitPastDisconnects waits until the reports of the peer's disconnects in the previous epoch have come and were delivered. Later reports are of
// the new epoch.
func (a *Assembly) awaitPastDisconnects(ctx context.Context, incarnation framework.Incarnation, byPeer int) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for late := time.Now().Add(lateReportTimeout); ; {
		a.upcalls.Lock()
		isDelivering := a.upcalls.isDelivering
		a.upcalls.Unlock()
		a.mu.Lock()
		known, _ := a.peers.get(incarnation)
		if known.previous.byPeer >= byPeer && !isDelivering || time.Now().After(late) || ctx.Err() != nil {
			if known.previous.isAwaited {
				known.previous.isAwaited = false
				a.peers.set(incarnation, known)
			}
			a.mu.Unlock()
			return
		}
		a.mu.Unlock()
		<-tick.C
	}
}
