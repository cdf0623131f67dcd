package assembly

import (
	"iter"

	"github.com/ferrympi/ferry/assembly/wireup"
	"github.com/ferrympi/ferry/framework"
)

// peerRecords has the records of incarnations with a card, one of each process. Lookups take constant time. A process
// without a record is in the tables, or unknown.
type peerRecords struct {
	byID    map[framework.ProcID]record
	byNonce map[uint64]framework.ProcID
	// Those that are not zero.
	epochByID map[framework.ProcID]epochState
	// Of records, each once.
	nodeIDs     map[string]string
	liveTables  nodeTables
	cardScratch []byte
	lastNode    string // See node.
	// Those without a card that PMLs have asked for.
	soughtNonces map[uint64]struct{}
	// seeksAll is set when soughtNonces was full.
	seeksAll bool
}

// peerEntry is all that is known of an incarnation.
type peerEntry struct {
	record
	epochState
}

// record is the part of a peerEntry that is stored for each incarnation.
type record struct {
	nonce uint64
	// Empty if none has come, or if cardTable has it.
	encodedCard []byte
	// From the card; equal ids share memory.
	nodeID      string
	cardEdition uint32
	// PMLs were notified of the end of all exchanges with it.
	hasEnded bool
	// PMLs have a card of the process, or have asked for one.
	isTaken bool

	// Has the card, at tableRank, or nil.
	cardTable *nodeTable
	tableRank int32
}

// copyCard returns the card, or nil if none has come. The bytes may be those of the record.
func (r *record) copyCard() []byte {
	if r.cardTable == nil {
		return r.encodedCard
	}
	return r.cardTable.record(int(r.tableRank), nil).Card
}

// leaveTable copies the card of a table, which may be freed then.
func (r *record) leaveTable() {
	if r.cardTable != nil {
		r.encodedCard, r.cardTable = r.copyCard(), nil
	}
}

func (r *record) hasCard() bool { return len(r.encodedCard) > 0 || r.cardTable != nil }

func newPeerRecords() peerRecords {
	return peerRecords{byID: map[framework.ProcID]record{}, byNonce: map[uint64]framework.ProcID{}, epochByID: map[framework.ProcID]epochState{},
		nodeIDs: map[string]string{}, soughtNonces: map[uint64]struct{}{}}
}

// reserve makes room for the members of a group, if there is no record yet.
func (k *peerRecords) reserve(members int) {
	if len(k.byID) == 0 {
		k.byID, k.byNonce = make(map[framework.ProcID]record, members), make(map[uint64]framework.ProcID, members)
	}
}

// get returns the state of an incarnation.
func (k *peerRecords) get(incarnation framework.Incarnation) (known peerEntry, ok bool) {
	known.record, ok = k.byID[incarnation.ID]
	switch {
	case ok:
		known.epochState = k.epochByID[incarnation.ID]
	default:
		known.record, ok = k.recordInTables(incarnation.ID)
	}
	if !ok || known.nonce != incarnation.Nonce {
		return peerEntry{}, false
	}
	return known, true
}

// recordInTables returns the record of a process in the tables.
func (k *peerRecords) recordInTables(id framework.ProcID) (r record, ok bool) {
	n, rank := k.liveTables.of(id)
	if n == nil {
		return record{}, false
	}
	in := n.record(rank, k.cardScratch[:0])
	k.cardScratch = in.Card
	r = record{nonce: in.Nonce, cardEdition: in.CardEdition, cardTable: n, tableRank: int32(rank)}
	if node, _, err := wireup.FindAddress(in.Card, framework.NodeEntry); err == nil {
		r.nodeID = k.node(node)
	}
	return r, true
}

// currentIncarnation returns the incarnation of a process.
func (k *peerRecords) currentIncarnation(id framework.ProcID) (incarnation framework.Incarnation, ok bool) {
	if known, ok := k.byID[id]; ok {
		return framework.Incarnation{ID: id, Nonce: known.nonce}, true
	}
	if n, rank := k.liveTables.of(id); n != nil {
		return n.Member(rank).Incarnation, true
	}
	return framework.Incarnation{}, false
}

// seek records that a PML has asked for the card of a nonce that none has.
func (k *peerRecords) seek(nonce uint64) {
	if len(k.soughtNonces) == maxSought {
		k.seeksAll = true
		return
	}
	k.soughtNonces[nonce] = struct{}{}
}

// isSought reports whether PMLs need the card of an incarnation at once. They do if they have a card of the process or have
// asked for one, and if communicators may have an earlier incarnation. The incarnation is sought no more.
func (k *peerRecords) isSought(incarnation framework.Incarnation) bool {
	before, ok := k.currentIncarnation(incarnation.ID)
	sought := k.seeks(incarnation.Nonce)
	delete(k.soughtNonces, incarnation.Nonce)
	return sought || ok && (k.byID[incarnation.ID].isTaken || before.Nonce != incarnation.Nonce)
}

// seeks reports whether a PML has asked for the card of a nonce.
func (k *peerRecords) seeks(nonce uint64) bool {
	_, sought := k.soughtNonces[nonce]
	return sought || k.seeksAll
}

// set stores the state of an incarnation, in place of that of another incarnation of the process. It copies a card from a table, unless
// the incarnation has ended, since its record goes with its last communicator.
func (k *peerRecords) set(incarnation framework.Incarnation, known peerEntry) {
	if old, ok := k.byID[incarnation.ID]; ok && old.nonce != incarnation.Nonce {
		k.remove(framework.Incarnation{ID: incarnation.ID, Nonce: old.nonce})
	}
	known.nonce, known.nodeID = incarnation.Nonce, k.keptNode(known.nodeID)
	if !known.hasEnded {
		known.leaveTable()
	}
	k.byID[incarnation.ID] = known.record
	if known.epochState != (epochState{}) {
		k.epochByID[incarnation.ID] = known.epochState
	} else {
		delete(k.epochByID, incarnation.ID)
	}
	if _, taken := k.byNonce[incarnation.Nonce]; !taken {
		k.byNonce[incarnation.Nonce] = incarnation.ID
	}
}

// hasRecord reports whether an incarnation has a record. A table may have one without.
func (k *peerRecords) hasRecord(incarnation framework.Incarnation) bool {
	known, ok := k.byID[incarnation.ID]
	return ok && known.nonce == incarnation.Nonce
}

// remove removes the record of an incarnation.
func (k *peerRecords) remove(incarnation framework.Incarnation) {
	if k.hasRecord(incarnation) {
		delete(k.byID, incarnation.ID)
		delete(k.epochByID, incarnation.ID)
		if k.byNonce[incarnation.Nonce] == incarnation.ID {
			delete(k.byNonce, incarnation.Nonce)
		}
	}
}

// owner returns the process that has a nonce.
func (k *peerRecords) owner(nonce uint64) (id framework.ProcID, ok bool) {
	if id, ok = k.byNonce[nonce]; ok {
		return id, true
	}
	for n := range k.liveTables.all() {
		if incarnation, ok := n.find(nonce); ok {
			if now, _ := k.currentIncarnation(incarnation.ID); now == incarnation {
				return incarnation.ID, true
			}
		}
	}
	return 0, false
}

// keptNode returns the one copy of a node id that the records of all processes of the node have.
func (k *peerRecords) keptNode(id string) string {
	if same, ok := k.nodeIDs[id]; ok {
		return same
	}
	k.nodeIDs[id] = id
	return id
}

// node returns a node id, and keeps the last one only, because a table may have thousands. Tables mostly have the processes of a node in
// sequence.
func (k *peerRecords) node(id []byte) string {
	if same, ok := k.nodeIDs[string(id)]; ok {
		return same
	}
	if k.lastNode != string(id) {
		k.lastNode = string(id)
	}
	return k.lastNode
}

// len returns the number of records.
func (k *peerRecords) len() int { return len(k.byID) }

// records returns the incarnations with a record, in no order. Their removal is allowed meanwhile.
func (k *peerRecords) records() iter.Seq2[framework.Incarnation, peerEntry] {
	return func(yield func(framework.Incarnation, peerEntry) bool) {
		for id, known := range k.byID {
			if !yield(framework.Incarnation{ID: id, Nonce: known.nonce}, peerEntry{known, k.epochByID[id]}) {
				return
			}
		}
	}
}

// tableOnlyIncarnations returns the incarnations of the tables without a record, in no order.
func (k *peerRecords) tableOnlyIncarnations() iter.Seq[framework.Incarnation] {
	return func(yield func(framework.Incarnation) bool) {
		for n := range k.liveTables.all() {
			for rank := range n.Len() {
				incarnation := n.Member(rank).Incarnation
				if _, hasRecord := k.byID[incarnation.ID]; hasRecord {
					continue
				}
				if newest, _ := k.liveTables.of(incarnation.ID); newest == n && !yield(incarnation) {
					return
				}
			}
		}
	}
}
