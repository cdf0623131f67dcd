package assembly

import (
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/ferrympi/ferry/assembly/wireup"
	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// adopt returns the area of a table, or nil if it is in a message. The port does not close it.
func (p *levelPort) adopt(t *wireup.Table) *btl.Area {
	i := slices.IndexFunc(p.sharedAreas, func(a *btl.Area) bool { return &a.Bytes[0] == &t.Bytes()[0] })
	if i < 0 {
		return nil
	}
	area := p.sharedAreas[i]
	p.sharedAreas[i] = &btl.Area{Hide: area.Hide, Close: area.Hide}
	return area
}

// Accept checks the records of the table, and settles the id. It stores records of the members on this node, and of those with
// another record in this process. The others stay in the table.
func (p *levelPort) Accept(t *wireup.Table) error {
	d := t.Decision()
	at := slices.IndexFunc(p.pmls, func(m PML) bool { return wireup.Same(m.Capabilities(), d.ChosenCapabilities) })
	if at < 0 {
		return fmt.Errorf("%w: assembly: the table of a communicator has a pml that this process does not have", framework.ErrTransport)
	}
	for _, b := range t.Capabilities() {
		if _, err := p.decodeCapabilities(b); err != nil {
			return wireup.BadTable(fmt.Errorf("capabilities in the table of a communicator: %w", err))
		}
	}
	p.chosenPML = p.pmls[at]
	p.memberTable = newNodeTable(t, p.env.Worlds.Index(p.group[0].Namespace), framework.ProcsOf(p.group...), p.adopt(t))
	p.commSpec = pml.CommSpec{ID: cid.Extended{Base: t.ID()}, Members: p.memberTable, Rank: p.rank}
	ids := d.IDs
	var room [wireup.MaxMember]byte
	for i := range p.group {
		r, err := t.Record(i, room[:0])
		if err != nil {
			return wireup.BadTable(err)
		}
		if ids.Policy == cid.PolicyGather {
			ids.MemberIDs = append(ids.MemberIDs, r.LocalID)
		}
		if err := p.admit(i, r); err != nil {
			return err
		}
	}
	if err := t.CheckOrder(); err != nil {
		return wireup.BadTable(err)
	}
	p.mu.Lock()
	isDue := p.peers.liveTables.add(p.memberTable)
	isolated := p.isolationErr
	p.mu.Unlock()
	if isDue {
		go runtime.GC()
	}
	if isolated != nil { // No PML was notified for the members without a record.
		return isolated
	}
	p.timing.mark(stepTable)
	if err := settle(&p.commSpec, p.chosenPML.CIDs(), p.candidateIDs, ids); err != nil {
		p.commSpec.Local = cid.NoLocal
		return err
	}
	return nil
}

// admit checks the record of a member, and learns the member if the table is not enough. The record is not kept.
func (p *levelPort) admit(rank int, r wireup.Record) error {
	incarnation := framework.Incarnation{ID: framework.MakeProcID(p.memberTable.worldIndex, p.group[rank].Rank), Nonce: r.Nonce}
	if rank == p.rank {
		if incarnation != p.env.Self {
			return wireup.BadTable(errors.New("the table of a communicator has another incarnation of this process"))
		}
		return nil
	}
	node, _, err := wireup.FindAddress(r.Card, framework.NodeEntry)
	if err != nil {
		return wireup.BadTable(fmt.Errorf("business card of %v: %w", p.group[rank], err))
	}
	if !p.needsRecord(incarnation, r.CardEdition, node) {
		return nil
	}
	r.Card = slices.Clone(r.Card)
	return p.learnRecord(rank, r)
}

// needsRecord reports whether a member of a table needs a record. It does if it is on this node, if another incarnation or a card of it has
// come before, if a PML seeks it, or if its nonce is that of another process.
func (p *levelPort) needsRecord(incarnation framework.Incarnation, edition uint32, node []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if owner, hasOwner := p.peers.byNonce[incarnation.Nonce]; hasOwner && owner != incarnation.ID || incarnation.Nonce == p.env.Self.Nonce {
		return true
	}
	if before, ok := p.peers.recordInTables(incarnation.ID); ok && (before.nonce != incarnation.Nonce || before.cardEdition != edition) {
		if _, hasRecord := p.peers.byID[incarnation.ID]; !hasRecord { // The newest table counts from now on, and the garbage collector may free it first.
			p.peers.set(framework.Incarnation{ID: incarnation.ID, Nonce: before.nonce}, peerEntry{record: before})
		}
	}
	_, hasRecord := p.peers.byID[incarnation.ID]
	isHere := len(node) > 0 && string(node) == p.env.Node
	if hasRecord || isHere || p.peers.seeks(incarnation.Nonce) {
		return true
	}
	p.nodeProcs.arrive(incarnation, false)
	return false
}

// learnRecord learns the card of a member.
func (p *levelPort) learnRecord(rank int, r wireup.Record) error {
	incarnation := framework.Incarnation{ID: framework.MakeProcID(p.memberTable.worldIndex, p.group[rank].Rank), Nonce: r.Nonce}
	return p.learn(incarnation, p.group[rank], wireup.Payload{Nonce: r.Nonce, Capabilities: r.Capabilities, Card: r.Card, Edition: r.CardEdition})
}
