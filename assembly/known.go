package assembly

import (
	"iter"

	"github.com/ferrympi/ferry/framework"
)

// acquaintances are the incarnations whose cards have come, one of each process. Lookups take constant time.
type acquaintances struct {
	byID     map[framework.ProcID]record
	byNonce  map[uint64]framework.ProcID
	renewals map[framework.ProcID]renewal // Those that are not zero.
	nodes    map[string]string            // Node ids, each once.
	// sought are nonces without a card that PMLs have asked for.
	sought map[uint64]struct{}
	// seeksAll is set when sought was full.
	seeksAll bool
}

// acquaintance is the state of an incarnation.
type acquaintance struct {
	record
	renewal
}

// record is the part of an acquaintance that each incarnation has.
type record struct {
	nonce    uint64
	card     []byte // Encoded. Empty if none has come.
	node     string // Node id in the card; equal ids share memory.
	edition  uint32
	hasEnded bool // PMLs were notified of the end of all exchanges with it.
	isTaken  bool // PMLs have a card of the process, or have asked for one.
}

func newAcquaintances() acquaintances {
	return acquaintances{byID: map[framework.ProcID]record{}, byNonce: map[uint64]framework.ProcID{}, renewals: map[framework.ProcID]renewal{},
		nodes: map[string]string{}, sought: map[uint64]struct{}{}}
}

// expect makes room for the members of a group, if there is no record yet.
func (k *acquaintances) expect(members int) {
	if len(k.byID) == 0 {
		k.byID, k.byNonce = make(map[framework.ProcID]record, members), make(map[uint64]framework.ProcID, members)
	}
}

// get returns the record of an incarnation.
func (k *acquaintances) get(life framework.Life) (known acquaintance, ok bool) {
	if known.record, ok = k.byID[life.ID]; !ok || known.nonce != life.Nonce {
		return acquaintance{}, false
	}
	known.renewal = k.renewals[life.ID]
	return known, true
}

// present returns the incarnation of a process.
func (k *acquaintances) present(id framework.ProcID) (life framework.Life, ok bool) {
	known, ok := k.byID[id]
	return framework.Life{ID: id, Nonce: known.nonce}, ok
}

// seek records that a PML has asked for the card of a nonce that none has.
func (k *acquaintances) seek(nonce uint64) {
	if len(k.sought) == mostSought {
		k.seeksAll = true
		return
	}
	k.sought[nonce] = struct{}{}
}

// isSought reports whether PMLs need the card of an incarnation at once. They do if they have a card of the process or have
// asked for one, and if communicators may have an earlier incarnation. The incarnation is sought no more.
func (k *acquaintances) isSought(life framework.Life) bool {
	known, ok := k.byID[life.ID]
	_, sought := k.sought[life.Nonce]
	delete(k.sought, life.Nonce)
	return sought || k.seeksAll || ok && (known.isTaken || known.nonce != life.Nonce)
}

// set stores the record of an incarnation, in place of that of another incarnation of the process.
func (k *acquaintances) set(life framework.Life, known acquaintance) {
	if old, ok := k.present(life.ID); ok && old != life {
		k.remove(old)
	}
	known.nonce = life.Nonce
	k.byID[life.ID] = known.record
	if known.renewal != (renewal{}) {
		k.renewals[life.ID] = known.renewal
	} else {
		delete(k.renewals, life.ID)
	}
	if _, taken := k.byNonce[life.Nonce]; !taken {
		k.byNonce[life.Nonce] = life.ID
	}
}

// remove removes the record of an incarnation.
func (k *acquaintances) remove(life framework.Life) {
	if _, ok := k.get(life); ok {
		delete(k.byID, life.ID)
		delete(k.renewals, life.ID)
		if k.byNonce[life.Nonce] == life.ID {
			delete(k.byNonce, life.Nonce)
		}
	}
}

// owner returns the process that has a nonce.
func (k *acquaintances) owner(nonce uint64) (id framework.ProcID, ok bool) {
	id, ok = k.byNonce[nonce]
	return id, ok
}

// node returns the one copy of a node id. All processes of a node have the same one.
func (k *acquaintances) node(id []byte) string {
	if same, ok := k.nodes[string(id)]; ok {
		return same
	}
	k.nodes[string(id)] = string(id)
	return k.nodes[string(id)]
}

func (k *acquaintances) len() int { return len(k.byID) }

// all returns all incarnations with their records, in no order. Their removal is allowed meanwhile.
func (k *acquaintances) all() iter.Seq2[framework.Life, acquaintance] {
	return func(yield func(framework.Life, acquaintance) bool) {
		for id, known := range k.byID {
			if !yield(framework.Life{ID: id, Nonce: known.nonce}, acquaintance{known, k.renewals[id]}) {
				return
			}
		}
	}
}
