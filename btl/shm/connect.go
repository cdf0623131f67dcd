package shm

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/segment"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/shmlayout"
	"github.com/ferrympi/ferry/progress"
)

// remoteInbox is the mapped inbox of a peer.
type remoteInbox struct {
	name    string
	segment segment.Segment
	mapping *segment.Mapping
	inbox   shmlayout.Inbox
}

func (r *remoteInbox) Close() {
	r.mapping.Close()
	r.segment.Close()
}

// isClosed reports whether the peer has closed or truncated its inbox.
func (r *remoteInbox) isClosed() (closed bool) {
	err := guarded(func() error { closed = r.inbox.Closed(); return nil })
	return closed || err != nil
}

// checkName returns an error unless name, which comes from a peer, is a plain file name.
func checkName(name string) error {
	if name == "" || filepath.Base(name) != name {
		return fmt.Errorf("%q is not a segment name", name)
	}
	return nil
}

// attachInbox maps the header and the slots of a peer's inbox.
func (m *module) attachInbox(name string, nonce uint64) (*remoteInbox, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if name == m.name() { // Closing a second descriptor would drop this process's mark.
		return nil, fmt.Errorf("%s is the inbox of this process", name)
	}
	seg, err := m.space.Open(m.path(name))
	if err != nil {
		return nil, err
	}
	// The header has the number of slots. The mapping covers as many of them as the file has.
	mapped, err := seg.Map(0, int(min(seg.Size(), roundToPages(int64(shmlayout.Size(1<<16))))))
	if err != nil {
		seg.Close()
		return nil, err
	}
	far := &remoteInbox{name: name, segment: seg, mapping: mapped}
	if err := guarded(func() (err error) { far.inbox, err = shmlayout.Attach(mapped.Bytes, nonce); return err }); err != nil {
		far.Close()
		return nil, fmt.Errorf("%s: %w", seg.Path(), err)
	}
	return far, nil
}

// attachPeer maps the peer's inbox. It succeeds only for a peer on this node.
func (m *module) attachPeer(peer framework.Peer) (*remoteInbox, error) {
	if peer.Proc == m.env.Identity.Proc {
		return nil, btl.NotMeant("a process does not use shared memory with itself")
	}
	if mark := m.env.Identity.NodeLabel(); mark != "" && !strings.HasSuffix(string(peer.Blob), "-"+mark) {
		return nil, errors.New("the peer is on another simulated node (ferry run --nodes)")
	}
	far, err := m.attachInbox(string(peer.Blob), peer.Nonce)
	if err != nil {
		return nil, fmt.Errorf("not on this node, or %s is not shared: %w", m.dir, err)
	}
	return far, nil
}

// Reach maps and unmaps the peer's inbox.
func (m *module) Reach(peer framework.Peer) error {
	far, err := m.attachPeer(peer)
	if err == nil {
		far.Close()
	}
	return err
}

// Connect maps the peer's inbox and requests a ring.
func (m *module) Connect(peer framework.Peer) (btl.Endpoint, error) {
	if e := m.endpoints[peer.Incarnation]; e != nil {
		e.Close()
	}
	far, err := m.attachPeer(peer)
	if err != nil {
		return nil, err
	}
	var slot int
	if err := guarded(func() (err error) { slot, err = m.requestRing(far); return err }); err != nil {
		far.Close()
		return nil, err
	}
	e := &endpoint{module: m, peer: peer.Incarnation, remote: far, slot: far.inbox.Slot(slot), slotIndex: slot, bell: progress.BellAt(far.inbox.Bell())}
	m.endpoints[peer.Incarnation] = e
	e.enqueueWaiting()
	m.env.Engine.Nudge() // A sleeping waiter reads Due again.
	return e, nil
}

// requestRing claims a slot of a peer's inbox and requests a ring there.
func (m *module) requestRing(far *remoteInbox) (index int, err error) {
	slots := far.inbox.Slots()
	for i := range slots {
		// Successive ranks start at successive slots, which avoids contention.
		index := (int(m.env.Identity.Proc.Rank) + i) % slots
		slot := far.inbox.Slot(index)
		if !slot.Transition(shmlayout.Free, shmlayout.Claimed) {
			continue
		}
		slot.RequestRing(shmlayout.Sender{
			Rank:  m.env.Identity.Proc.Rank,
			World: framework.NamespaceHash(m.env.Identity.Proc.Namespace),
			Nonce: m.env.Self.Nonce,
			Name:  m.name(),
		})
		far.inbox.Request()
		return index, nil
	}
	return 0, fmt.Errorf("all %d sender slots of the peer are taken; raise btl.shm.max_peers", slots)
}
