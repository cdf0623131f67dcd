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

// remote is a peer's inbox, mapped here.
type remote struct {
	name    string
	segment segment.Segment
	mapping *segment.Mapping
	box     shmlayout.Inbox
}

func (r *remote) Close() {
	r.mapping.Close()
	r.segment.Close()
}

// closed reports whether the peer has closed its inbox, or lost it.
func (r *remote) closed() (closed bool) {
	err := guarded(func() error { closed = r.box.Closed(); return nil })
	return closed || err != nil
}

// checkName says whether a peer's word is a name of a segment.
func checkName(name string) error {
	if name == "" || filepath.Base(name) != name {
		return fmt.Errorf("%q is not a segment name", name)
	}
	return nil
}

// attach maps header and slots of a peer's inbox.
func (m *module) attach(name string, nonce uint64) (*remote, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if name == m.name() { // Its mark would be lost.
		return nil, fmt.Errorf("%s is the inbox of this process", name)
	}
	seg, err := m.space.Open(m.path(name))
	if err != nil {
		return nil, err
	}
	// The mapping covers what there is of the first pages; the header says how
	// many slots are meant to be there.
	mapped, err := seg.Map(0, int(min(seg.Size(), pages(int64(shmlayout.Size(1<<16))))))
	if err != nil {
		seg.Close()
		return nil, err
	}
	far := &remote{name: name, segment: seg, mapping: mapped}
	if err := guarded(func() (err error) { far.box, err = shmlayout.Attach(mapped.Bytes, nonce); return err }); err != nil {
		far.Close()
		return nil, fmt.Errorf("%s: %w", seg.Path(), err)
	}
	return far, nil
}

// reach maps the peer's inbox: the peer is on this node if that works.
func (m *module) reach(peer framework.Peer) (*remote, error) {
	if peer.Proc == m.env.Identity.Proc {
		return nil, btl.NotMeant("a process needs no shared memory with itself")
	}
	if mark := m.env.Identity.NodeMark(); mark != "" && !strings.HasSuffix(string(peer.Blob), "-"+mark) {
		return nil, errors.New("on another node of this machine (ferry run --nodes)")
	}
	far, err := m.attach(string(peer.Blob), peer.Nonce)
	if err != nil {
		return nil, fmt.Errorf("not on this node, or %s is not shared: %w", m.dir, err)
	}
	return far, nil
}

// Reach maps the peer's inbox for a moment.
func (m *module) Reach(peer framework.Peer) error {
	far, err := m.reach(peer)
	if err == nil {
		far.Close()
	}
	return err
}

// Connect maps the peer's inbox and asks for a ring.
func (m *module) Connect(peer framework.Peer) (btl.Endpoint, error) {
	if e := m.out[peer.Life]; e != nil {
		e.Close()
	}
	far, err := m.reach(peer)
	if err != nil {
		return nil, err
	}
	var slot int
	if err := guarded(func() (err error) { slot, err = m.ask(far); return err }); err != nil {
		far.Close()
		return nil, err
	}
	e := &endpoint{m: m, peer: peer.Life, far: far, slot: far.box.Slot(slot), slotIndex: slot, bell: progress.BellAt(far.box.Bell())}
	m.out[peer.Life] = e
	e.wait()
	m.env.Engine.Nudge() // who sleeps already looks at Due again
	return e, nil
}

// ask claims a slot of a peer's inbox, and asks for a ring there.
func (m *module) ask(far *remote) (index int, err error) {
	slots := far.box.Slots()
	for i := range slots {
		// Neighbours in rank get neighbouring slots; nobody else contends then.
		index := (int(m.env.Identity.Proc.Rank) + i) % slots
		slot := far.box.Slot(index)
		if !slot.Transition(shmlayout.Free, shmlayout.Claimed) {
			continue
		}
		slot.RequestRing(shmlayout.Sender{
			Rank:  m.env.Identity.Proc.Rank,
			World: framework.NamespaceHash(m.env.Identity.Proc.Namespace),
			Nonce: m.env.Self.Nonce,
			Name:  m.name(),
		})
		far.box.Request()
		return index, nil
	}
	return 0, fmt.Errorf("all %d places for senders at the peer are taken; raise btl.shm.max_peers", slots)
}
