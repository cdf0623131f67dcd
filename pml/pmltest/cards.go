package pmltest

import (
	"sync"

	"github.com/ferrympi/ferry/framework"
)

// cards implements pml.Cards for a process of the kit.
type cards struct {
	mu    sync.Mutex
	lives map[framework.Life]framework.Card
}

func (c *cards) add(peer framework.Life, card framework.Card) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lives[peer] = card
}

// Card implements pml.Cards.
func (c *cards) Card(peer framework.Life) (framework.Card, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	card, ok := c.lives[peer]
	return card, ok
}

// Find implements pml.Cards.
func (c *cards) Find(nonce uint64) (framework.Life, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for peer := range c.lives {
		if peer.Nonce == nonce {
			return peer, true
		}
	}
	return framework.Life{}, false
}

// Node implements pml.Cards.
func (c *cards) Node(peer framework.Life) string {
	card, _ := c.Card(peer)
	return card.Node()
}
