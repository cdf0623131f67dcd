package threads

import (
	"bytes"
	"errors"
	"runtime"
	"testing"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

func (c *comm) checkRemoved(t *testing.T) {
	t.Helper()
	c.rank.engine.Lock()
	defer c.rank.engine.Unlock()
	if len(c.rank.commByID) != 0 {
		t.Error("the handle is not removed")
	}
}

// TestClose_TransferIsDeferred_CompletesIt delivers the completion cell after the last drain of Close.
func TestClose_TransferIsDeferred_CompletesIt(t *testing.T) {
	_, comms := openTeam(t, 2)
	x := startTransfer(t, comms, 200_000, nil)
	comms[1].Close()
	x.check(x.receive)
	comms[1].checkRemoved(t)
}

// TestClose_TransferFollows_CompletesTheSend has a sender without calls after Close.
func TestClose_TransferFollows_CompletesTheSend(t *testing.T) {
	_, comms := openTeam(t, 2)
	x := startTransfer(t, comms, 200_000, nil)
	comms[0].Close()
	x.run()
	x.check(x.send)
	comms[0].checkRemoved(t)
}

// TestClose_CompletionBehindClaimedCell_CompletesIt checks that Close waits for the sender of the claimed cell.
func TestClose_CompletionBehindClaimedCell_CompletesIt(t *testing.T) {
	team, comms := openTeam(t, 2)
	x := startTransfer(t, comms, 200_000, nil)
	publish := team.Rank(1).claim(comms[1].shared.teamCommID, 0, 1)
	x.run()
	done := make(chan struct{})
	go func() {
		comms[1].Close()
		close(done)
	}()
	runtime.Gosched() // Close may run up to the claimed cell
	publish()
	<-done
	x.check(x.receive)
	comms[1].checkRemoved(t)
}

// TestTeamClose_MatchedOperations_Complete covers deferred transfers, and completion cells in the rings.
func TestTeamClose_MatchedOperations_Complete(t *testing.T) {
	for _, ran := range []bool{false, true} {
		team, comms := openTeam(t, 2)
		x := startTransfer(t, comms, 200_000, nil)
		if ran {
			x.run()
		}
		team.Close()
		x.check(x.send, x.receive)
	}
}

// TestTeamClose_OfferInRing_IsReceived has a posted receive of the last rank that matches the offer.
func TestTeamClose_OfferInRing_IsReceived(t *testing.T) {
	team, comms := openTeam(t, 2)
	x := &transfer{t: t, comms: comms, sent: bytes.Repeat([]byte{7}, 200_000), got: make([]byte, 200_000)}
	var err error
	if x.receive, err = comms[0].Irecv(pml.Buffer{Bytes: x.got}, 1, 5, p2p); err != nil {
		t.Fatal(err)
	}
	sender := comms[1].rank.engine
	sender.Lock()
	if x.send, err = comms[1].StartSend(pml.Buffer{Bytes: x.sent}, 0, 5, p2p, pml.Standard); err != nil {
		t.Fatal(err)
	}
	sender.Unlock() // runs no delivery
	team.Close()
	x.check(x.send, x.receive)
}

// TestTeamClose_ClaimedMessage_EndsItsSend, and a later receive of the message fails.
func TestTeamClose_ClaimedMessage_EndsItsSend(t *testing.T) {
	for _, drops := range []bool{false, true} {
		team, comms := openTeam(t, 2)
		send, err := comms[0].Isend(pml.Buffer{}, 1, 5, p2p, pml.Synchronous)
		if err != nil {
			t.Fatal(err)
		}
		claimed, _, ok, err := comms[1].Improbe(0, 5, p2p)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		team.Close()
		if !send.Done() || !errors.Is(send.Status.Err, framework.ErrClosed) {
			t.Errorf("send: done %t, %v", send.Done(), send.Status.Err)
		}
		if drops {
			claimed.Drop()
		} else if _, err := claimed.Recv(t.Context(), pml.Buffer{}); !errors.Is(err, framework.ErrClosed) {
			t.Errorf("receive: %v", err)
		}
	}
}
