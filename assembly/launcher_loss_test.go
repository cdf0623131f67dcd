package assembly

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/assembly/wireup"
	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

var lost = bootstrap.Event{Kind: bootstrap.ServerLost, Reason: "test"}

// receiveFromNew creates a communicator with a new process, and starts a receive from it.
func receiveFromNew(t *testing.T, a *Assembly, nonce uint64) receive {
	t.Helper()
	other := framework.Proc{Namespace: "other", Rank: uint32(nonce)}
	incarnation := framework.Incarnation{ID: a.env.Worlds.ID(other), Nonce: nonce}
	if err := a.learn(incarnation, other, wireup.Payload{Nonce: nonce, Capabilities: a.encodedCapabilities, Card: a.ownCard.encodedCard}); err != nil {
		t.Fatal(err)
	}
	m := a.pmls[0]
	local, err := m.CIDs().Reserve()
	if err != nil {
		t.Fatal(err)
	}
	c, err := m.AddComm(pml.CommSpec{ID: cid.Extended{Base: nonce}, Local: local, Members: pml.NewMembers([]pml.Member{{Incarnation: a.env.Self}, {Incarnation: incarnation}})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	r, err := c.Irecv(pml.Buffer{}, 1, 0, pml.PointToPoint)
	if err != nil {
		t.Fatal(err)
	}
	return receive{r, r.Generation()}
}

type receive struct {
	*pml.Request
	generation uint32
}

func (r receive) wait(t *testing.T) error {
	_, err := r.Wait(t.Context(), r.generation)
	return err
}

func TestLauncherLost_TimeoutPasses_EndsExchangeWithAll(t *testing.T) {
	a, events := newHanging().open(t, nil, framework.Setting{Name: "bootstrap.timeout", Value: "10ms"})
	defer a.Close()
	early, left, died := receiveFromNew(t, a, 1), receiveFromNew(t, a, 2), receiveFromNew(t, a, 3)
	events.event(bootstrap.Event{Kind: bootstrap.PeerLeft, Proc: framework.Proc{Namespace: "other", Rank: 2}, Nonce: 2})
	events.event(bootstrap.Event{Kind: bootstrap.PeerFailed, Proc: framework.Proc{Namespace: "other", Rank: 3}, Nonce: 3, Reason: "test"})
	events.event(lost)
	if err := early.wait(t); !errors.Is(err, framework.ErrTransport) || !strings.Contains(err.Error(), "the launcher has been gone since") {
		t.Errorf("a receive that waits when the launcher goes: %v", err)
	}
	if err := receiveFromNew(t, a, 4).wait(t); !errors.Is(err, framework.ErrTransport) || !strings.Contains(err.Error(), "the launcher has been gone since") {
		t.Errorf("one from a process that comes late: %v", err)
	}
	if err := left.wait(t); !errors.Is(err, framework.ErrPeerClosed) {
		t.Errorf("one from a process that had left: %v", err)
	}
	if err := died.wait(t); !errors.Is(err, framework.ErrProcFailed) {
		t.Errorf("one from a process that had died: %v", err)
	}
}

func TestClose_LauncherLost_DoesNotWaitForTimeout(t *testing.T) {
	a, events := newHanging().open(t, nil, framework.Setting{Name: "bootstrap.timeout", Value: "1h"})
	r := receiveFromNew(t, a, 1)
	events.event(lost)
	events.event(lost)
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if err := r.wait(t); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("a receive pending at Close ends with %v", err)
	}
}

func TestLauncherLost_OnLossContinue_KeepsExchange(t *testing.T) {
	a, events := newHanging().open(t, nil,
		framework.Setting{Name: "bootstrap.timeout", Value: "1ms"}, framework.Setting{Name: "bootstrap.on_loss", Value: "continue"})
	r := receiveFromNew(t, a, 1)
	events.event(lost)
	time.Sleep(20 * time.Millisecond)
	if _, done, err := r.Test(r.generation); done || err != nil {
		t.Errorf("a receive ended: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}
