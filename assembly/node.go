package assembly

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/assembly/wireup"
	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/hostid"
	"github.com/ferrympi/ferry/pml"
)

// nodeID returns an id that processes have in common if and only if they share memory. It is derived from the boot id of the kernel and the
// directory of memory segments. Containers of one host form one node if they share that directory. Host names are not
// unique, and a node of a launcher may consist of several containers. It is empty without such a directory. mark is bootstrap.Identity.NodeLabel.
func nodeID(values *framework.Values, mark string) string {
	dir, ok := values.Get("btl.shm.dir")
	if !ok {
		dir.Text = "/dev/shm"
	}
	proof, err := hostid.Proof(dir.Text)
	if err != nil {
		return ""
	}
	if mark != "" {
		proof += " " + mark
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(proof)))
}

// Nodes returns the nodes of a communicator's members for coll.Shape. They are those of the cards, and therefore equal in all members.
func (a *Assembly) Nodes(members pml.Members) coll.Placement {
	a.mu.Lock()
	defer a.mu.Unlock()
	type node struct {
		id string
		// Rank plus one if the node is unknown.
		rankIfUnknown int
	}
	nodes := coll.MakePlacement(func(yield func(node) bool) {
		for rank := range members.Len() {
			m := members.Member(rank)
			id := a.env.Node
			if m.Incarnation != a.env.Self {
				known, _ := a.peers.get(m.Incarnation)
				id = known.nodeID
			}
			n := node{id: id}
			if id == "" {
				n.rankIfUnknown = rank + 1
			}
			if !yield(n) {
				return
			}
		}
	})
	if nodes.Count() == 1 {
		return nil
	}
	return nodes
}

// Sharer returns the open transport that shares memory among processes of a node, and its component. It returns nil if there is none.
func (a *Assembly) Sharer() (btl.Sharer, string) {
	for i, m := range a.transports {
		if s, ok := framework.As[btl.Sharer](m); ok {
			return s, a.transportNames[i]
		}
	}
	return nil, ""
}

// Peer returns the address of a member of a communicator for a component.
func (a *Assembly) Peer(incarnation framework.Incarnation, component string) (framework.Peer, error) {
	a.mu.Lock()
	known, _ := a.peers.get(incarnation)
	card := known.copyCard()
	a.mu.Unlock()
	proc := a.env.Worlds.Proc(incarnation.ID)
	blob, found, err := wireup.FindAddress(card, component)
	switch {
	case err != nil:
		return framework.Peer{}, fmt.Errorf("%v: no card: %w", proc, err)
	case !found:
		return framework.Peer{}, fmt.Errorf("%v: the peer has no address for %s: it is not open there", proc, component)
	}
	return framework.Peer{Incarnation: incarnation, Proc: proc, Blob: slices.Clone(blob)}, nil
}
