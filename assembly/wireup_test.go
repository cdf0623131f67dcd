package assembly

import (
	"errors"
	"testing"

	"github.com/ferrympi/ferry/framework"
)

// TestCardWithAnothersNonceIsRefused: PMLs know lives by their nonces.
func TestCardWithAnothersNonceIsRefused(t *testing.T) {
	a, err := Open(t.Context(), Options{Settings: []framework.Setting{{Name: "pml", Value: "ob1"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	learn := func(rank uint32, nonce uint64) error {
		p := framework.Proc{Namespace: "other", Rank: rank}
		return a.learn(framework.Life{ID: a.env.Worlds.ID(p), Nonce: nonce}, p, payload{Nonce: nonce, Offers: a.offers, Card: a.card.bytes})
	}
	if err := errors.Join(learn(1, 5), learn(2, 7), learn(1, 5), learn(1, 9)); err != nil {
		t.Fatal(err)
	}
	for _, nonce := range []uint64{7, a.env.Self.Nonce} {
		if err := learn(3, nonce); !errors.Is(err, framework.ErrTransport) {
			t.Errorf("a card with nonce %d: %v", nonce, err)
		}
	}
}
