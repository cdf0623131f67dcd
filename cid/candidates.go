package cid

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/framework"
)

// Candidates holds a member's candidate ids for a new communicator. Its Table withholds their
// indices from all other uses until Accept or Release, one of which must follow on every path.
// Its methods are for one goroutine at a time.
type Candidates struct {
	table  *Table
	policy Policy
	// Ascending by index, with the generation used last, 0 for none.
	entries []Local
}

// Candidate ids are encoded as version, policy, number of entries (16 bits), and 32 bits for
// each entry, a Local with the generation that the member has used last on this index. All
// is big-endian, and entries ascend by index.
const (
	candidatesVersion = 1
	headerSize        = 4
	entrySize         = 4

	// maxCandidates is the largest number of entries that a decoder accepts. They fit into
	// a bootstrap payload of 64 KiB.
	maxCandidates = 16383
)

// WithholdCandidates withholds the candidate ids that policy needs for a communicator of this number of
// members. PolicyLazy needs none, PolicyGather one, and PolicyAgree several. Auto is agree,
// and becomes gather and then lazy as the number of members grows and their candidate ids
// exceed candidateBudget. room is the number of bytes left in the construct's payload. A
// policy that does not fit becomes lazy.
func (t *Table) WithholdCandidates(policy Policy, members, room int) *Candidates {
	return t.withhold(policy.candidatePlan(members, room))
}

// withhold withholds the n lowest free indices, or fewer if fewer are free. Other members
// most likely have the same indices as candidates. Late messages to a reused index are
// recognized by its generation, and by its quarantine.
func (t *Table) withhold(policy Policy, n int) *Candidates {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := &Candidates{table: t, policy: policy}
	for range min(n, maxCandidates) {
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

// Bytes returns the encoded candidate ids, 4 bytes and 4 for each index. The caller owns the
// slice.
func (o *Candidates) Bytes() []byte {
	b := make([]byte, 0, headerSize+entrySize*len(o.entries))
	b = append(b, candidatesVersion, byte(o.policy))
	b = binary.BigEndian.AppendUint16(b, uint16(len(o.entries)))
	for _, e := range o.entries {
		b = binary.BigEndian.AppendUint32(b, uint32(e))
	}
	return b
}

// Accept makes l live, which Decide or Agree has returned, and releases the other indices of
// o. If l is not among the candidate ids, or its generation is not new, it returns an error
// and changes nothing. The caller then releases o.
func (t *Table) Accept(o *Candidates, l Local) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o.table != t {
		return errors.New("cid: candidate ids belong to another table, or are settled already")
	}
	at, ok := slices.BinarySearchFunc(o.entries, l, byIndex)
	if !ok || !l.Valid() || l.Gen() == o.entries[at].Gen() {
		return fmt.Errorf("cid: id %v does not follow from this process's candidate ids", l)
	}
	t.settleCandidates(o, l)
	return nil
}

// Release frees all indices of o, after the construct has failed or decided otherwise. Early
// arrivals that name one of them are then Free or Stale. Releasing twice has no effect.
func (t *Table) Release(o *Candidates) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o.table == t {
		t.settleCandidates(o, NoLocal)
	}
}

func (t *Table) settleCandidates(o *Candidates, taken Local) {
	for _, e := range o.entries {
		if taken.Valid() && e.Index() == taken.Index() {
			t.set(e.Index(), Live, taken.Gen())
		} else {
			t.set(e.Index(), Free, e.Gen())
		}
	}
	o.table, o.entries = nil, nil
}

// decodeCandidates accepts exactly the encodings that Bytes can return.
func decodeCandidates(b []byte) (Candidates, error) {
	if len(b) < headerSize {
		return Candidates{}, fmt.Errorf("%d bytes, a header has %d", len(b), headerSize)
	}
	if b[0] != candidatesVersion {
		return Candidates{}, fmt.Errorf("version %d, want %d", b[0], candidatesVersion)
	}
	o := Candidates{policy: Policy(b[1])}
	if o.policy > PolicyLazy {
		return Candidates{}, fmt.Errorf("unknown policy %d", b[1])
	}
	n := int(binary.BigEndian.Uint16(b[2:]))
	if n > maxCandidates || len(b) != headerSize+entrySize*n {
		return Candidates{}, fmt.Errorf("%d bytes for %d indices", len(b), n)
	}
	o.entries = make([]Local, n)
	for i := range o.entries {
		o.entries[i] = Local(binary.BigEndian.Uint32(b[headerSize+entrySize*i:]))
		if i > 0 && o.entries[i].Index() <= o.entries[i-1].Index() {
			return Candidates{}, fmt.Errorf("index %d does not follow %d", o.entries[i].Index(), o.entries[i-1].Index())
		}
	}
	return o, nil
}

func decodeAllCandidates(encoded [][]byte) ([]Candidates, error) {
	os := make([]Candidates, len(encoded))
	for i, b := range encoded {
		var err error
		if os[i], err = decodeCandidates(b); err != nil {
			return nil, fmt.Errorf("cid: candidate ids of member %d of %d: %v: %w", i, len(encoded), err, framework.ErrTransport)
		}
	}
	return os, nil
}
