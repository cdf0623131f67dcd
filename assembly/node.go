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

// nodeID returns what is equal in processes that share memory, and in no others: the
// kernel's boot, and the directory in which segments are made. Containers on one host are
// one node if they share that directory. A host's name proves none of this, and what a
// launcher counts as a node may be several containers. Empty: there is no such directory. The mark of the node is that of
// bootstrap.Identity.NodeMark.
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

// Nodes returns the nodes of a communicator's members as coll.Shape has them. The cards name the node of each, so that the result is
// equal in all members.
func (a *Assembly) Nodes(members pml.Members) coll.Placement {
	a.mu.Lock()
	defer a.mu.Unlock()
	type node struct {
		id    string
		alone int // One more than the rank if the node of the process is not known.
	}
	nodes := coll.MakePlacement(func(yield func(node) bool) {
		for rank := range members.Len() {
			m := members.Member(rank)
			id := a.env.Node
			if m.Life != a.env.Self {
				known, _ := a.known.get(m.Life)
				id = known.node
			}
			n := node{id: id}
			if id == "" {
				n.alone = rank + 1
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

// Sharer returns the transport by which processes of a node share memory, and the name of
// its component; nil: none of those that are open does that.
func (a *Assembly) Sharer() (btl.Sharer, string) {
	for i, m := range a.movers {
		if s, ok := framework.As[btl.Sharer](m); ok {
			return s, a.carry[i]
		}
	}
	return nil, ""
}

// Peer returns what a module of a component needs to reach a member of a communicator.
func (a *Assembly) Peer(life framework.Life, component string) (framework.Peer, error) {
	a.mu.Lock()
	known, _ := a.known.get(life)
	card := known.copyCard()
	a.mu.Unlock()
	proc := a.env.Worlds.Proc(life.ID)
	blob, found, err := wireup.FindAddress(card, component)
	switch {
	case err != nil:
		return framework.Peer{}, fmt.Errorf("%v: no card: %w", proc, err)
	case !found:
		return framework.Peer{}, fmt.Errorf("%v: the peer has no address for %s: it is not open there", proc, component)
	}
	return framework.Peer{Life: life, Proc: proc, Blob: slices.Clone(blob)}, nil
}
