package assembly

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/assembly/wireup"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

func TestLearn_UnusedProcess_WaitsForNoEngine(t *testing.T) {
	hang := newHanging()
	a, _ := hang.open(t, nil)
	hang.hang(a)
	if err := learn(a, 1, 5); err != nil {
		t.Error(err)
	}
	close(hang.goOn)
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

func TestLearn_NewIncarnation_EndsTheOldOneInPMLs(t *testing.T) {
	for name, isUsed := range map[string]bool{"used": true, "not used": false} {
		t.Run(name, func(t *testing.T) {
			a, _ := newHanging().open(t, nil)
			defer a.Close()
			g := joins(t, a, 1)
			defer g.comm.Close()
			any, err := g.comm.Irecv(pml.Buffer{}, pml.AnySource, 0, pml.PointToPoint)
			if err != nil {
				t.Fatal(err)
			}
			if isUsed {
				if _, _, err := g.comm.Iprobe(1, 0, pml.PointToPoint); err != nil {
					t.Fatal(err)
				}
				r, err := g.comm.Irecv(pml.Buffer{}, 1, 0, pml.PointToPoint)
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if _, err := r.Wait(t.Context(), r.Generation()); !errors.Is(err, framework.ErrPeerClosed) {
						t.Errorf("a receive from the old incarnation: %v", err)
					}
				}()
			}
			if err := learn(a, 1, 77); err != nil {
				t.Fatal(err)
			}
			if _, err := any.Wait(t.Context(), any.Generation()); !errors.Is(err, framework.ErrPeerClosed) {
				t.Errorf("a receive from any source: %v", err)
			}
		})
	}
}

func TestLearn_LaterCardOfAProcess_IsThatOfItsPaths(t *testing.T) {
	for name, isUsed := range map[string]bool{"used": true, "not used": false} {
		t.Run(name, func(t *testing.T) {
			a, _ := newHanging().open(t, nil)
			defer a.Close()
			g := joins(t, a, 1)
			defer g.comm.Close()
			if isUsed {
				r, err := g.comm.Irecv(pml.Buffer{}, 1, 0, pml.PointToPoint)
				if err != nil {
					t.Fatal(err)
				}
				if err := r.Cancel(r.Generation()); err != nil {
					t.Fatal(err)
				}
			}
			before := fmt.Sprint(a.pmls[0].Route(g.incarnation).Rejected)
			without := slices.DeleteFunc(a.Card(), func(e framework.Address) bool { return e.Component == "btl.hanging" })
			card, err := wireup.EncodeCard(without)
			if err != nil {
				t.Fatal(err)
			}
			if err := a.learn(g.incarnation, g.proc, wireup.Payload{Nonce: g.incarnation.Nonce, Capabilities: a.encodedCapabilities, Card: card, Edition: 1}); err != nil {
				t.Fatal(err)
			}
			if after := fmt.Sprint(a.pmls[0].Route(g.incarnation).Rejected); after == before {
				t.Errorf("the route is that of the earlier card: %s", after)
			}
		})
	}
}

func TestLearn_CardSoughtByPMLs_IsPassedAtOnce(t *testing.T) {
	a, _ := newHanging().open(t, nil)
	defer a.Close()
	book := cards{a}
	sought, other := guestIncarnation(a, 1, 5), guestIncarnation(a, 2, 6)
	if _, ok := book.Find(sought.Nonce); ok {
		t.Fatal("a nonce is found before its card has come")
	}
	for _, l := range []framework.Incarnation{sought, other} {
		if err := learn(a, l.ID.Rank(), l.Nonce); err != nil {
			t.Fatal(err)
		}
		if got, ok := book.Find(l.Nonce); !ok || got != l {
			t.Errorf("nonce %d is %v, %t", l.Nonce, got, ok)
		}
	}
	a.mu.Lock()
	first, _ := a.peers.get(sought)
	second, _ := a.peers.get(other)
	left := len(a.peers.soughtNonces)
	a.mu.Unlock()
	if !first.isTaken || second.isTaken || left > 0 {
		t.Errorf("taken: the card that was sought %t, another one %t; %d nonces are sought still", first.isTaken, second.isTaken, left)
	}
	if _, ok := book.Card(other); !ok {
		t.Error("no card of a process that has come")
	}
	if _, ok := book.Card(guestIncarnation(a, 2, 7)); ok {
		t.Error("a card of another incarnation")
	}
}

func TestPeerRecords_ManySought_AreBounded(t *testing.T) {
	k := newPeerRecords()
	for nonce := range uint64(2 * maxSought) {
		k.seek(nonce)
	}
	if len(k.soughtNonces) != maxSought || !k.isSought(incarnationOf(1, 1<<40)) {
		t.Errorf("%d nonces are sought", len(k.soughtNonces))
	}
}

func guestIncarnation(a *Assembly, rank uint32, nonce uint64) framework.Incarnation {
	return framework.Incarnation{ID: a.env.Worlds.ID(framework.Proc{Namespace: "other", Rank: rank}), Nonce: nonce}
}

// learn gives the assembly the card of a process of another job.
func learn(a *Assembly, rank uint32, nonce uint64) error {
	p := framework.Proc{Namespace: "other", Rank: rank}
	return a.learn(guestIncarnation(a, rank, nonce), p, wireup.Payload{Nonce: nonce, Capabilities: a.encodedCapabilities, Card: a.ownCard.encodedCard})
}
