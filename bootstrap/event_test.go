package bootstrap

import (
	"errors"
	"testing"

	"github.com/ferrympi/ferry/framework"
)

// The numbers are those of the wire.
func TestEvent_OfPeer_ReportsItsState(t *testing.T) {
	peer := framework.Incarnation{ID: 3, Nonce: 7}
	for _, c := range []struct {
		kind     EventKind
		number   uint8
		state    framework.PeerState
		sentinel error
	}{
		{PeerFailed, 1, framework.Failed, framework.ErrProcFailed},
		{PeerLeft, 4, framework.Left, framework.ErrPeerClosed},
		{PeerUnreachable, 5, framework.Unreachable, framework.ErrPeerDisconnected},
	} {
		ev := Event{Kind: c.kind, Reason: "test"}.PeerEvent(peer)
		if uint8(c.kind) != c.number || c.kind.PeerState() != c.state || ev.State != c.state || ev.Peer != peer || !errors.Is(ev.Err, c.sentinel) {
			t.Errorf("kind %d, state %v: event %+v of state %v", c.kind, c.kind.PeerState(), ev, c.state)
		}
	}
	for _, kind := range []EventKind{ServerLost, Dump, CommBroken, NoteReceived, CommRevoked} {
		if state := kind.PeerState(); state != framework.Alive {
			t.Errorf("kind %d reports state %v", kind, state)
		}
	}
}
