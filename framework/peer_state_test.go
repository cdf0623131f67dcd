package framework

import (
	"errors"
	"fmt"
	"testing"
)

func TestPeerState_String_IsNameInCode(t *testing.T) {
	want := map[PeerState]string{Alive: "Alive", Leaving: "Leaving", Left: "Left", Unreachable: "Unreachable", Failed: "Failed", 9: "PeerState(9)"}
	for state, name := range want {
		if state.String() != name {
			t.Errorf("state %d prints %q, want %q", uint8(state), state, name)
		}
	}
}

func TestPeerState_HasEnded_IsSetWithoutFurtherMessages(t *testing.T) {
	for state, want := range map[PeerState]bool{Alive: false, Leaving: false, Left: true, Unreachable: true, Failed: true} {
		if state.HasEnded() != want {
			t.Errorf("%v: HasEnded returns %t", state, !want)
		}
	}
}

func TestPeerEvent_OfState_HasItsError(t *testing.T) {
	peer := Incarnation{ID: 3, Nonce: 7}
	for _, c := range []struct {
		ev       PeerEvent
		state    PeerState
		sentinel error
		text     string
	}{
		{FailedEvent(peer, "signal: killed"), Failed, ErrProcFailed, "process failed: signal: killed"},
		{LeftEvent(peer), Left, ErrPeerClosed, ErrPeerClosed.Error()},
		{UnreachableEvent(peer, fmt.Errorf("%w: test", ErrPeerDisconnected)), Unreachable, ErrPeerDisconnected, ErrPeerDisconnected.Error() + ": test"},
	} {
		if c.ev.Peer != peer || c.ev.State != c.state || !errors.Is(c.ev.Err, c.sentinel) || c.ev.Err.Error() != c.text {
			t.Errorf("event of %v: %+v", c.state, c.ev)
		}
		if !c.ev.State.HasEnded() {
			t.Errorf("%v has not ended", c.ev.State)
		}
	}
}
