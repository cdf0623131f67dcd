package cm

import (
	"context"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// Where shared memory is used between processes of a node (pml.cm.shared_memory),
// their messages are another PML's (framework.Requirement.Node): a communicator has one there,
// with an id of its own, beside the one in the network. The path to a member is
// fixed by what all members know alike, so that both ends of it look at the same
// place: the launcher's word on who is on a node. A communicator whose members are
// all on one node is that PML's alone; one that has nobody else of the node is the
// network's alone, messages to oneself included. See mixed for those between.

// nearMembers returns which members' messages go through the node's PML, by rank, and
// how many they are, this process included.
func (m *Module) nearMembers(spec *pml.CommSpec) (near []bool, n int) {
	if m.node == nil {
		return nil, 0
	}
	near = make([]bool, len(spec.Group))
	for rank, member := range spec.Group {
		if near[rank] = member.Life == m.self || m.isNear(member.Life); near[rank] {
			n++
		}
	}
	if n == 1 && len(spec.Group) > 1 {
		return nil, 0
	}
	return near, n
}

// isNear reports whether another process is on this node, and is reached there.
func (m *Module) isNear(peer framework.Life) bool {
	_, local := slices.BinarySearch(m.env.Identity.Locals, peer.ID.Rank())
	return m.node != nil && local && peer.ID.World() == m.self.ID.World()
}

// nodeComm makes the part on the node of a communicator.
func (m *Module) nodeComm(spec pml.CommSpec) (pml.Comm, error) {
	local, err := m.node.CIDs().Reserve()
	if err != nil {
		return nil, fmt.Errorf("pml cm: on the node: %w", err)
	}
	spec.Local, spec.Agreed, spec.Indices = local, false, nil
	c, err := m.node.AddComm(spec)
	if err != nil {
		m.node.CIDs().Close(local)
		return nil, fmt.Errorf("pml cm: on the node: %w", err)
	}
	return c, nil
}

// nearComm is a communicator whose members are all on this node.
type nearComm struct {
	pml.Comm
	m    *Module
	spec pml.CommSpec
}

// Close implements pml.Comm. Nothing was sent under the id in the network.
func (c *nearComm) Close() {
	c.Comm.Close()
	c.m.comms.Table.Close(c.spec.Local) // a second time does nothing
}

// mixed is a communicator with members here and elsewhere. What concerns one member
// goes to the node's PML or to the network. See wild for receives from any source.
type mixed struct {
	*comm
	node pml.Comm
	wild [pml.Planes]*wild
}

// Send implements pml.Comm.
func (c *mixed) Send(ctx context.Context, buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) error {
	if c.near[dst] {
		return c.node.Send(ctx, buf, dst, tag, plane, mode)
	}
	return c.comm.Send(ctx, buf, dst, tag, plane, mode)
}

// Isend implements pml.Comm.
func (c *mixed) Isend(buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) (*pml.Request, error) {
	if c.near[dst] {
		return c.node.Isend(buf, dst, tag, plane, mode)
	}
	return c.comm.Isend(buf, dst, tag, plane, mode)
}

// where says who has the messages of a source: the node's PML, the network, or
// (wild) both. A plane that has had a receive from any source stays wild. Lock held.
func (c *mixed) where(src int, plane pml.Plane) (onNode bool, w *wild) {
	switch {
	case src != pml.AnySource && !c.near[src]:
		return false, nil
	case src != pml.AnySource && c.wild[plane] == nil:
		return true, nil
	case c.wild[plane] == nil && !c.Closed():
		c.wild[plane] = newWild(c, plane)
	}
	return false, c.wild[plane]
}

func (c *mixed) look(src int, plane pml.Plane) (onNode bool, w *wild) {
	c.m.engine.Lock()
	defer c.m.engine.Unlock()
	return c.where(src, plane)
}

// Recv implements pml.Comm.
func (c *mixed) Recv(ctx context.Context, buf pml.Buffer, src, tag int, plane pml.Plane) (pml.Status, error) {
	c.m.engine.Lock()
	onNode, w := c.where(src, plane)
	if onNode {
		c.m.engine.Unlock()
		return c.node.Recv(ctx, buf, src, tag, plane)
	}
	st, err := c.post(w, buf, src, tag, plane).finishWait(ctx)
	c.m.engine.Unlock()
	return st, err
}

// Irecv implements pml.Comm.
func (c *mixed) Irecv(buf pml.Buffer, src, tag int, plane pml.Plane) (*pml.Request, error) {
	c.m.engine.Lock()
	onNode, w := c.where(src, plane)
	if onNode {
		c.m.engine.Unlock()
		return c.node.Irecv(buf, src, tag, plane)
	}
	r := c.post(w, buf, src, tag, plane)
	c.m.engine.Unlock()
	return &r.Request, nil
}

func (c *mixed) post(w *wild, buf pml.Buffer, src, tag int, plane pml.Plane) *request {
	if w == nil {
		return c.postRecv(buf, src, tag, plane)
	}
	return w.postRecv(buf, src, tag)
}

// Iprobe implements pml.Comm.
func (c *mixed) Iprobe(src, tag int, plane pml.Plane) (pml.Status, bool, error) {
	onNode, w := c.look(src, plane)
	switch {
	case onNode:
		return c.node.Iprobe(src, tag, plane)
	case w == nil:
		return c.comm.Iprobe(src, tag, plane)
	}
	_, st, ok, err := w.find(src, tag, false)
	return st, ok, err
}

// Improbe implements pml.Comm.
func (c *mixed) Improbe(src, tag int, plane pml.Plane) (pml.Claimed, pml.Status, bool, error) {
	onNode, w := c.look(src, plane)
	switch {
	case onNode:
		return c.node.Improbe(src, tag, plane)
	case w == nil:
		return c.comm.Improbe(src, tag, plane)
	}
	return w.find(src, tag, true)
}

// Probe implements pml.Comm.
func (c *mixed) Probe(ctx context.Context, src, tag int, plane pml.Plane) (pml.Status, error) {
	onNode, w := c.look(src, plane)
	switch {
	case onNode:
		return c.node.Probe(ctx, src, tag, plane)
	case w == nil:
		return c.comm.Probe(ctx, src, tag, plane)
	}
	_, st, err := w.await(ctx, src, tag, false)
	return st, err
}

// Mprobe implements pml.Comm.
func (c *mixed) Mprobe(ctx context.Context, src, tag int, plane pml.Plane) (pml.Claimed, pml.Status, error) {
	onNode, w := c.look(src, plane)
	switch {
	case onNode:
		return c.node.Mprobe(ctx, src, tag, plane)
	case w == nil:
		return c.comm.Mprobe(ctx, src, tag, plane)
	}
	return w.await(ctx, src, tag, true)
}

// Abort implements pml.Comm.
func (c *mixed) Abort(plane pml.Plane, err error) {
	c.node.Abort(plane, err)
	c.comm.Abort(plane, err)
}

// Close implements pml.Comm. The part on the node stays while receives wait there.
func (c *mixed) Close() {
	c.comm.Close()
	c.m.engine.Lock()
	var ended []*wild
	for _, w := range c.wild {
		if w != nil && w.mayEnd() {
			ended = append(ended, w)
		}
	}
	c.m.engine.Unlock()
	for _, w := range ended {
		<-w.ended
	}
	c.release()
}

// release closes the part on the node when no plane needs it any more.
func (c *mixed) release() {
	c.m.engine.Lock()
	for _, w := range c.wild {
		if w != nil && !w.over {
			c.m.engine.Unlock()
			return
		}
	}
	c.m.engine.Unlock()
	c.node.Close() // a second time does nothing
}
