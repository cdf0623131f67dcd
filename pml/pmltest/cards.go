package pmltest

import (
	"sync"

	"github.com/ferrympi/ferry/framework"
)

// cards implements pml.Cards for a process of the kit.
type cards struct {
	mu           sync.Mutex
	incarnations map[framework.Incarnation]framework.Card
}

func (c *cards) add(peer framework.Incarnation, card framework.Card) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.incarnations[peer] = card
}

// Card implements pml.Cards.
func (c *cards) Card(peer framework.Incarnation) (framework.Card, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	card, ok := c.incarnations[peer]
	return card, ok
}

// Find implements pml.Cards.
func (c *cards) Find(nonce uint64) (framework.Incarnation, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for peer := range c.incarnations {
		if peer.Nonce == nonce {
			return peer, true
		}
	}
	return framework.Incarnation{}, false
}

// Node implements pml.Cards.
func (c *cards) Node(peer framework.Incarnation) string {
	card, _ := c.Card(peer)
	return card.Node()
}
