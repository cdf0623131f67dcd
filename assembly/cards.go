package assembly

import (
	"github.com/ferrympi/ferry/assembly/wireup"
	"github.com/ferrympi/ferry/framework"
)

// cards implements pml.Cards. PMLs take the card of a process at its first use. Later cards of the process are theirs from the
// wire-up on (see storeRecord).
type cards struct{ *Assembly }

// maxSought is the number of nonces that PMLs have asked for and that no card has. Above, PMLs get each new card.
const maxSought = 1 << 12

// Card implements pml.Cards.
func (c cards) Card(peer framework.Incarnation) (framework.Card, bool) {
	c.mu.Lock()
	known, ok := c.peers.get(peer)
	if !ok || !known.hasCard() {
		c.peers.seek(peer.Nonce)
		c.mu.Unlock()
		return nil, false
	}
	known.leaveTable() // One read of memory that others may write to.
	if !known.isTaken {
		known.isTaken = true
		c.peers.set(peer, known)
	}
	encoded := known.encodedCard
	c.mu.Unlock()
	card, err := wireup.DecodeCard(encoded)
	if err != nil {
		return framework.Card{}, true // Its table was changed, and no transport reaches it.
	}
	return card, true
}

// Find implements pml.Cards.
func (c cards) Find(nonce uint64) (framework.Incarnation, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id, ok := c.peers.owner(nonce); ok {
		return framework.Incarnation{ID: id, Nonce: nonce}, true
	}
	c.peers.seek(nonce)
	return framework.Incarnation{}, false
}

// Node implements pml.Cards.
func (c cards) Node(peer framework.Incarnation) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, _ := c.peers.get(peer)
	return known.nodeID
}
