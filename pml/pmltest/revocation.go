package pmltest

import (
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/pml"
)

// revocationCases abort the planes of the user and of collectives, as package mpi does to revoke a communicator.
func revocationCases() claims {
	return claims{
		kittest.New("Revoked_PostedReceivesAndProbes_End", 3, (*fixture).revokedPosted),
		kittest.New("Revoked_LaterOperations_FailAndControlWorks", 3, (*fixture).revokedLater),
		kittest.New("Revoked_UnexpectedMessages_SendsEnd", 2, (*fixture).revokedUnexpected),
		kittest.New("Revoked_TransfersInProgress_CompleteOrEnd", 2, (*fixture).revokedTransfers),
		kittest.New("Revoked_ClaimedMessages_AreReceived", 2, (*fixture).revokedClaimed),
		kittest.New("Revoked_EngineLockHeldByCallers_StartedOperationsEnd", 2, (*fixture).revokedStarted),
		kittest.New("Revoked_AllRanksAtOnce_EverythingEnds", 3, (*fixture).revokedAtOnce),
		kittest.New("Revoked_MemberIsDead_OperationsOfTheOthersEnd", 3, (*fixture).revokedAfterDeath),
	}
}

var errRevoked = fmt.Errorf("%w by the test", framework.ErrRevoked)

func revoke(c pml.Comm) {
	c.Abort(p2p, errRevoked)
	c.Abort(pml.Collective, errRevoked)
}

// isRevoked checks that an operation ends with the reason of the revocation.
func (f *fixture) isRevoked(what string, p pending) {
	_, err := p.wait(f.Context())
	f.Is(what, err, errRevoked)
}

// areReleased closes communicators and checks that their ids are released, except in ranks where free is negative.
func (f *fixture) areReleased(comms []pml.Comm, free []int) {
	for _, c := range comms {
		c.Close()
	}
	for rank := range comms {
		if free[rank] < 0 {
			continue
		}
		if f.team != nil || f.Procs[rank].host != nil { // Goroutine ranks have ids that the kit keeps.
			continue
		}
		f.Until("release of the id", func() bool { return f.Procs[rank].Module.CIDs().Free() == free[rank] })
	}
}

// revocable returns a communicator with members that have exchanged messages. free are the ids that were free before.
func (f *fixture) revocable() (comms []pml.Comm, free []int) {
	for _, p := range f.Procs {
		free = append(free, p.Module.CIDs().Free())
	}
	comms = f.comm()
	f.connectAll(comms)
	return comms, free
}

func (f *fixture) revokedPosted() {
	comms, free := f.revocable()
	c := comms[0]
	all := map[string]pending{}
	for _, src := range []int{0, 1, pml.AnySource} {
		all[fmt.Sprint("receive from ", src)] = f.irecv(c, src, 1, make([]byte, 4))
	}
	calls := map[string]func() error{
		"recv":       func() error { _, err := c.Recv(f.Context(), pml.Buffer{}, 1, 2, p2p); return err },
		"recv any":   func() error { _, err := c.Recv(f.Context(), pml.Buffer{}, pml.AnySource, 2, p2p); return err },
		"probe":      func() error { _, err := c.Probe(f.Context(), 1, 3, p2p); return err },
		"probe any":  func() error { _, err := c.Probe(f.Context(), pml.AnySource, 3, p2p); return err },
		"mprobe":     func() error { _, _, err := c.Mprobe(f.Context(), 2, 3, p2p); return err },
		"mprobe any": func() error { _, _, err := c.Mprobe(f.Context(), pml.AnySource, 3, p2p); return err },
	}
	errs := make(chan error, len(calls))
	for name, call := range calls {
		f.Go(func() {
			if err := call(); !errors.Is(err, framework.ErrRevoked) {
				errs <- fmt.Errorf("blocked %s: %w, want that it is revoked", name, err)
				return
			}
			errs <- nil
		})
	}
	f.Until("posting", func() bool { return f.posted(0) >= len(all)+2 })
	revoke(c)
	for range calls {
		f.Check(<-errs)
	}
	for name, p := range all {
		f.isRevoked(name, p)
	}
	revoke(comms[1])
	revoke(comms[2])
	f.areReleased(comms, free)
}

func (f *fixture) revokedLater() {
	comms, free := f.revocable()
	for _, c := range comms {
		revoke(c)
		revoke(c)
	}
	c := comms[0]
	for _, src := range []int{1, pml.AnySource} {
		f.isRevoked("later receive", f.irecv(c, src, 1, make([]byte, 4)))
		_, err := c.Recv(f.Context(), pml.Buffer{}, src, 1, p2p)
		f.Is("later blocking receive", err, errRevoked)
		_, err = c.Probe(f.Context(), src, 1, p2p)
		f.Is("later probe", err, errRevoked)
		_, _, err = c.Mprobe(f.Context(), src, 1, p2p)
		f.Is("later matched probe", err, errRevoked)
		_, _, err = c.Iprobe(src, 1, p2p)
		f.Is("later iprobe", err, errRevoked)
	}
	for _, plane := range []pml.Plane{p2p, pml.Collective} {
		f.Is("later synchronous send", c.Send(f.Context(), buffer(data(1, 4)), 1, 1, plane, pml.Synchronous), errRevoked)
		f.Is("later long send", c.Send(f.Context(), buffer(data(1, 1<<20)), 1, 1, plane, pml.Standard), errRevoked)
	}
	f.connectAll(comms) // On the control plane.
	f.send(f.commsByRank[0], 1, 1, data(1, 4))
	f.want(f.commsByRank[1], pml.AnySource, 1, data(1, 4), 0, 1)
	f.areReleased(comms, free)
}

// revokedUnexpected revokes a communicator in the sender and the receiver of messages without a receive, in both orders. The
// first one may close the communicator before the other one revokes it.
func (f *fixture) revokedUnexpected() {
	for _, first := range []int{0, 1} {
		for _, closes := range []bool{false, true} {
			comms, free := f.revocable()
			var all []pending
			for _, size := range []int{10, 5000, 100_000, 1 << 20} {
				for _, mode := range []pml.Mode{pml.Standard, pml.Synchronous} {
					all = append(all, f.isend(comms[0], 1, 1, data(size, size), mode))
				}
			}
			f.awaitArrival(comms[1], 0, 1)
			revoke(comms[first])
			if closes {
				comms[first].Close()
			}
			revoke(comms[1-first])
			for i, p := range all {
				// A receiver that closes before the sender has revoked drops the message.
				if _, err := p.wait(f.Context()); err != nil && !(closes && first == 1 && errors.Is(err, framework.ErrCommClosed)) {
					f.Is(fmt.Sprintf("send %d, rank %d is the first, it closes: %t", i, first, closes), err, framework.ErrRevoked)
				} else if err == nil && i%2 == 1 {
					f.Fatalf("synchronous send %d succeeds without a receive", i)
				}
			}
			f.areReleased(comms, free)
		}
	}
}

// revokedTransfers revokes a communicator in all states of transfers. A receive that has matched completes, and so does its send.
func (f *fixture) revokedTransfers() {
	for round := range 40 {
		size := []int{10, 5000, 100_000, 3 << 20}[round%4]
		comms, free := f.revocable()
		buf := make([]byte, size)
		var receive, send pending
		if round%8 < 4 {
			receive, send = f.irecv(comms[1], 0, 1, buf), f.isend(comms[0], 1, 1, data(round, size), pml.Synchronous)
		} else {
			send = f.isend(comms[0], 1, 1, data(round, size), pml.Synchronous)
			receive = f.irecv(comms[1], pml.AnySource, 1, buf)
		}
		for range round / 8 {
			_, _, _ = receive.r.Peek(receive.gen)
			_, _, _ = send.r.Peek(send.gen)
		}
		revoke(comms[round%2])
		revoke(comms[1-round%2])
		_, sent := send.wait(f.Context())
		st, received := receive.wait(f.Context())
		switch {
		case received == nil:
			f.compare(st, received, buf, data(round, size), 0, 1)
			f.Check(sent)
		default:
			f.Is("receive", received, errRevoked)
			f.Is("send of a message that is not received", sent, framework.ErrRevoked)
		}
		f.areReleased(comms, free)
	}
}

// revokedClaimed receives messages after the revocation that a matched probe has claimed before.
func (f *fixture) revokedClaimed() {
	for _, size := range []int{10, 5000, 100_000, 3 << 20} {
		for _, first := range []int{0, 1} {
			comms, free := f.revocable()
			send := f.isend(comms[0], 1, 1, data(size, size), pml.Synchronous)
			k, _, err := comms[1].Mprobe(f.Context(), 0, 1, p2p)
			f.Check(err)
			revoke(comms[first])
			revoke(comms[1-first])
			buf := make([]byte, size)
			st, err := k.Recv(f.Context(), buffer(buf))
			f.compare(st, err, buf, data(size, size), 0, 1)
			f.wait(send)
			f.areReleased(comms, free)
		}
	}
}

// revokedStarted revokes a communicator with operations whose notifiers start others.
func (f *fixture) revokedStarted() {
	comms, free := f.revocable()
	c := comms[0]
	var n notes
	f.locked(0, func() {
		for tag := range 3 {
			r := c.StartRecv(buffer(make([]byte, 4)), 1, tag, p2p)
			r.Notify(&n)
		}
		r, err := c.StartSend(buffer(data(1, 1<<20)), 1, 4, p2p, pml.Synchronous)
		f.Check(err)
		r.Notify(&n)
	})
	revoke(c)
	revoke(comms[1])
	f.ends(0, &n, 4)
	f.locked(0, func() {
		for _, st := range n.endStatuses {
			f.Is("started operation", st.Err, errRevoked)
		}
	})
	var late pending
	f.locked(0, func() {
		r := c.StartRecv(buffer(nil), 1, 1, p2p)
		late = pending{r, r.Generation()}
	})
	f.isRevoked("later started receive", late)
	f.areReleased(comms, free)
}

// revokedAtOnce revokes a communicator in all ranks at the same time, amid messages of all of them to all others.
func (f *fixture) revokedAtOnce() {
	for round := range 10 {
		comms, free := f.revocable()
		f.each(comms, func(rank int, c pml.Comm) {
			var all []pending
			for i := range 12 {
				size := []int{4, 5000, 200_000}[i%3]
				for other := range comms {
					if other != rank {
						src := []int{other, pml.AnySource}[i%2]
						if p, err := isend(c, other, i, data(i, size), pml.Mode(i%2)); err == nil {
							all = append(all, p)
						} else if !errors.Is(err, framework.ErrRevoked) {
							f.Fatalf("send: %w", err)
						}
						all = append(all, f.irecv(c, src, i, make([]byte, size)))
					}
				}
				if i == round {
					revoke(c)
				}
			}
			for _, p := range all {
				if _, err := p.wait(f.Context()); err != nil {
					f.Is("operation", err, framework.ErrRevoked)
				}
			}
		})
		f.areReleased(comms, free)
	}
}

// revokedAfterDeath revokes communicators after the death of member 1. The receives of rank 0 from any source are suspended.
func (f *fixture) revokedAfterDeath() {
	f.processes()
	var all [2][]pml.Comm
	var before [2]pending
	var free []int
	for i := range all {
		comms, ids := f.revocable()
		if i == 0 {
			free = ids
		}
		all[i] = comms
		before[i] = f.irecv(all[i][0], pml.AnySource, 1, make([]byte, 4))
	}
	f.Procs[0].Module.PeerChanged(framework.FailedEvent(f.Group()[1].Incarnation, "signal: killed"))
	for i, comms := range all {
		suspend(comms[0], 1)
		f.revokedSuspended(comms, before[i], i == 0)
	}
	free[1] = -1 // It is not notified of the end.
	for _, c := range all[0] {
		c.Close()
	}
	f.areReleased(all[1], free)
}

// revokedSuspended revokes a communicator before or after messages of rank 2 have arrived in rank 0.
func (f *fixture) revokedSuspended(comms []pml.Comm, before pending, haveArrived bool) {
	c := comms[0]
	all := map[string]pending{
		"receive from any before the death": before,
		"receive from any":                  f.irecv(c, pml.AnySource, 1, make([]byte, 4)),
		"receive from 2":                    f.irecv(c, 2, 1, make([]byte, 4)),
	}
	probed := make(chan error, 1)
	f.Go(func() {
		_, err := c.Probe(f.Context(), 2, 1, p2p)
		probed <- err
	})
	var sends []pending
	for _, size := range []int{10, 61, 5000, 1 << 20} {
		sends = append(sends, f.isend(comms[2], 0, 2, data(size, size), pml.Synchronous))
	}
	if haveArrived {
		f.awaitArrival(c, 2, 2)
	}
	revoke(c)
	f.Is("probe", <-probed, errRevoked)
	for name, p := range all {
		f.isRevoked(name, p)
	}
	f.isRevoked("later receive from any", f.irecv(c, pml.AnySource, 1, make([]byte, 4)))
	_, _, err := c.Iprobe(pml.AnySource, 1, p2p)
	f.Is("later probe for any", err, errRevoked)
	revoke(comms[2])
	for i, p := range sends {
		_, err := p.wait(f.Context())
		f.Is(fmt.Sprintf("synchronous send %d", i), err, framework.ErrRevoked)
	}
}
