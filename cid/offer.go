package cid

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/framework"
)

// Offer is a member's part in the choice of a new communicator's local ids:
// indices that its Table withholds from everything else until the construct is
// decided. It ends by Accept or Release, on every path. Its methods are for one
// goroutine at a time.
type Offer struct {
	table   *Table
	policy  Policy
	entries []Local // ascending indices; the generation is the last used, 0 for none
}

// The encoding of an offer: version, policy, number of entries (16 bits), and
// 32 bits for each entry, as a Local with the generation that the member used
// last on that index. All big-endian, entries ascending by index.
const (
	offerVersion = 1
	offerHeader  = 4
	offerEntry   = 4

	// maxOffer is the largest number of entries that a decoder accepts: what
	// fits into a bootstrap payload of 64 KiB.
	maxOffer = 16383
)

// OfferFor withholds, for one construct, what policy needs for a communicator of
// that many members: nothing for PolicyLazy, one index for PolicyGather, several
// for PolicyAgree. Auto agrees, and goes to gather and to lazy as the members
// become so many that their offers weigh too much together. room is how many
// bytes the construct's payload can still take; a policy that does not fit
// becomes lazy.
func (t *Table) OfferFor(policy Policy, members, room int) *Offer {
	return t.offer(policy.plan(members, room))
}

// offer withholds the n lowest free indices: fewer when fewer are free. The lowest,
// for those are what other members most likely offer, too; what keeps a closed index
// from being mistaken is its generation, and its rest.
func (t *Table) offer(policy Policy, n int) *Offer {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := &Offer{table: t, policy: policy}
	for range min(n, maxOffer) {
		i, ok := t.nextEven()
		if !ok {
			if i, ok = t.lowestOdd(); !ok {
				break
			}
		}
		gen := t.gen(i)
		t.set(i, Withheld, gen)
		o.entries = append(o.entries, MakeLocal(i, gen))
	}
	slices.SortFunc(o.entries, byIndex)
	return o
}

func byIndex(a, b Local) int { return int(a.Index()) - int(b.Index()) }

// Bytes returns the offer as it travels: 4 bytes, and 4 for each index. The
// slice is the caller's.
func (o *Offer) Bytes() []byte {
	b := make([]byte, 0, offerHeader+offerEntry*len(o.entries))
	b = append(b, offerVersion, byte(o.policy))
	b = binary.BigEndian.AppendUint16(b, uint16(len(o.entries)))
	for _, e := range o.entries {
		b = binary.BigEndian.AppendUint32(b, uint32(e))
	}
	return b
}

// Accept makes l, which Decide or Agree found, live, and releases the other
// indices of o. An l that o does not hold, or whose generation is not a new
// one, is an error and changes nothing; the caller then releases o.
func (t *Table) Accept(o *Offer, l Local) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o.table != t {
		return errors.New("cid: the offer belongs to another table, or is already settled")
	}
	at, ok := slices.BinarySearchFunc(o.entries, l, byIndex)
	if !ok || !l.Valid() || l.Gen() == o.entries[at].Gen() {
		return fmt.Errorf("cid: id %v does not follow from this process's offer", l)
	}
	t.settle(o, l)
	return nil
}

// Release gives all indices of o back: the construct failed, or chose
// otherwise. Messages that a PML kept because they named one of them are then
// Free or Stale. An offer that was settled before is ignored.
func (t *Table) Release(o *Offer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o.table == t {
		t.settle(o, NoLocal)
	}
}

func (t *Table) settle(o *Offer, taken Local) {
	for _, e := range o.entries {
		if taken.Valid() && e.Index() == taken.Index() {
			t.set(e.Index(), Live, taken.Gen())
		} else {
			t.set(e.Index(), Free, e.Gen())
		}
	}
	o.table, o.entries = nil, nil
}

// decodeOffer is strict: what it accepts is exactly what Bytes can make.
func decodeOffer(b []byte) (Offer, error) {
	if len(b) < offerHeader {
		return Offer{}, fmt.Errorf("%d bytes, a header has %d", len(b), offerHeader)
	}
	if b[0] != offerVersion {
		return Offer{}, fmt.Errorf("version %d, want %d", b[0], offerVersion)
	}
	o := Offer{policy: Policy(b[1])}
	if o.policy > PolicyLazy {
		return Offer{}, fmt.Errorf("unknown policy %d", b[1])
	}
	n := int(binary.BigEndian.Uint16(b[2:]))
	if n > maxOffer || len(b) != offerHeader+offerEntry*n {
		return Offer{}, fmt.Errorf("%d bytes for %d indices", len(b), n)
	}
	o.entries = make([]Local, n)
	for i := range o.entries {
		o.entries[i] = Local(binary.BigEndian.Uint32(b[offerHeader+offerEntry*i:]))
		if i > 0 && o.entries[i].Index() <= o.entries[i-1].Index() {
			return Offer{}, fmt.Errorf("index %d does not follow %d", o.entries[i].Index(), o.entries[i-1].Index())
		}
	}
	return o, nil
}

func decodeOffers(offers [][]byte) ([]Offer, error) {
	os := make([]Offer, len(offers))
	for i, b := range offers {
		var err error
		if os[i], err = decodeOffer(b); err != nil {
			return nil, fmt.Errorf("cid: offer of member %d of %d: %v: %w", i, len(offers), err, framework.ErrTransport)
		}
	}
	return os, nil
}
