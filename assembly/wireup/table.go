package wireup

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// Decision is the decision about a communicator, which is equal in all members.
type Decision struct {
	// Their priority is 0.
	ChosenCapabilities pml.Capabilities
	// They are the first ones of each member.
	IsFirst        bool
	IDs            cid.Decision
	ReconnectPairs []Pair
}

// Pair is two disconnected members, which reconnect with this communicator.
type Pair struct {
	_ struct{} `cbor:",toarray"`
	// In the group.
	LowerRank, HigherRank uint32
	ReconnectCount        uint32
}

// A table has the records of all members, by rank, as one sequence of bytes. It begins with
//
//	0 u32 version   4 u32 number of members   8 u64 context id
//	16 u64 length of the table   24 u32 length of the decision
//
// and the decision as a CBOR array. At the next multiple of 8 follow the offsets of the records, as u32 in units of 8 bytes, from the first
// record on, then the ranks in the order of their nonces, as u32, and then the records, each at a multiple of 8.
const tableHeader = 32

type tableDecision struct {
	_              struct{} `cbor:",toarray"`
	Capabilities   [][]byte
	PML            string
	Version        uint32
	Detail         string
	IsFirst        bool
	Policy         uint8
	CommonID       uint32
	ReconnectPairs []Pair
}

// maxDecision bounds the bytes of a decision.
const maxDecision = 16 << 20

func align(n int) int { return (n + 7) &^ 7 }

// Decide decides for all members of a group, and returns the table. name returns the process of a rank in the group. Errors wrap
// framework.ErrUnsupported or framework.ErrTransport.
func (p *Part) Decide(id uint64, size int, name func(rank uint32) framework.Proc) ([]byte, error) {
	capabilities := slices.Clone(p.Capabilities)
	slices.SortFunc(capabilities, func(a, b Capability) int { return int(a.LowestRanks[0]) - int(b.LowestRanks[0]) })
	offer, isFirst, err := Choose(capabilities, name)
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, p.failures(name))
	}
	ids := cid.Decision{Policy: cid.PolicyLazy} // Ids are from the tables of the first PMLs.
	if isFirst {
		if ids, err = p.ids().Decide(size); err != nil {
			return nil, err
		}
	}
	records, err := p.index(size)
	if err != nil {
		return nil, err
	}
	if err := differ(records); err != nil {
		return nil, err
	}
	d := tableDecision{PML: offer.PML, Version: offer.Version, Detail: offer.Detail, IsFirst: isFirst,
		Policy: uint8(ids.Policy), CommonID: uint32(ids.CommonID), ReconnectPairs: pairsOf(p.EndedPairs, records)}
	for _, c := range p.Capabilities {
		d.Capabilities = append(d.Capabilities, c.EncodedList)
	}
	return encodeTable(id, d, records)
}

// index returns the records by rank.
func (p *Part) index(size int) ([][]byte, error) {
	records := make([][]byte, size)
	for b := p.encodedRecords; len(b) > 0; {
		n := recordLength(b)
		rank := binary.LittleEndian.Uint32(b)
		if records[rank] != nil {
			return nil, fmt.Errorf("%w: assembly: two records of rank %d in one group", framework.ErrTransport, rank)
		}
		records[rank], b = b[:n:n], b[n:]
	}
	if i := slices.IndexFunc(records, func(r []byte) bool { return r == nil }); i >= 0 {
		return nil, fmt.Errorf("%w: assembly: no record of rank %d in the group", framework.ErrTransport, i)
	}
	return records, nil
}

// byNonce returns the ranks in the order of their nonces.
func byNonce(records [][]byte) []uint32 {
	ranks := make([]uint32, len(records))
	for i := range ranks {
		ranks[i] = uint32(i)
	}
	slices.SortFunc(ranks, func(a, b uint32) int { return cmp.Compare(nonceOf(records[a]), nonceOf(records[b])) })
	return ranks
}

func nonceOf(record []byte) uint64 { return binary.LittleEndian.Uint64(record[8:]) }

// differ returns an error if two members have one nonce.
func differ(records [][]byte) error {
	ranks := byNonce(records)
	for i := 1; i < len(ranks); i++ {
		if a, b := ranks[i-1], ranks[i]; nonceOf(records[a]) == nonceOf(records[b]) {
			return fmt.Errorf("%w: assembly: rank %d and rank %d in one group have the same nonce", framework.ErrTransport, min(a, b), max(a, b))
		}
	}
	return nil
}

// failures returns the transports that did not open, as the end of an error, or "" without any.
func (p *Part) failures(name func(rank uint32) framework.Proc) string {
	var text strings.Builder
	for _, f := range p.OpenFailures {
		fmt.Fprintf(&text, "; %v could not open %s", name(f.Rank), f.Text)
	}
	if more := int(p.OpenFailureCount) - len(p.OpenFailures); more > 0 {
		fmt.Fprintf(&text, "; and %d more", more)
	}
	return text.String()
}

// pairsOf returns the pairs of which both incarnations are members, each once.
func pairsOf(ended []endedPair, records [][]byte) []Pair {
	var pairs []Pair
	for _, e := range ended {
		if e.FromRank == e.ToRank || binary.LittleEndian.Uint64(records[e.ToRank][8:]) != e.ToNonce {
			continue
		}
		pair := Pair{LowerRank: min(e.FromRank, e.ToRank), HigherRank: max(e.FromRank, e.ToRank), ReconnectCount: e.ReconnectCount}
		i, found := slices.BinarySearchFunc(pairs, pair, comparePair)
		if found {
			pairs[i].ReconnectCount = max(pairs[i].ReconnectCount, pair.ReconnectCount)
			continue
		}
		pairs = slices.Insert(pairs, i, pair)
	}
	return pairs
}

func comparePair(a, b Pair) int {
	if a.LowerRank != b.LowerRank {
		return int(a.LowerRank) - int(b.LowerRank)
	}
	return int(a.HigherRank) - int(b.HigherRank)
}

func encodeTable(id uint64, d tableDecision, records [][]byte) ([]byte, error) {
	decision, err := codec().Marshal(d)
	if err != nil {
		return nil, err
	}
	if len(decision) > maxDecision {
		return nil, fmt.Errorf("%w: the lists of PMLs of the members have %d bytes, at most %d", framework.ErrUnsupported, len(decision), maxDecision)
	}
	begin := align(tableHeader+len(decision)) + 8*len(records)
	total := begin
	for _, r := range records {
		total += align(len(r))
	}
	b := make([]byte, total)
	binary.LittleEndian.PutUint32(b, Version)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(records)))
	binary.LittleEndian.PutUint64(b[8:], id)
	binary.LittleEndian.PutUint64(b[16:], uint64(total))
	binary.LittleEndian.PutUint32(b[24:], uint32(len(decision)))
	copy(b[tableHeader:], decision)
	offsets := b[align(tableHeader+len(decision)):]
	for i, rank := range byNonce(records) {
		binary.LittleEndian.PutUint32(offsets[4*len(records)+4*i:], rank)
	}
	at := 0
	for i, r := range records {
		binary.LittleEndian.PutUint32(offsets[4*i:], uint32(at/8))
		copy(b[begin+at:], r)
		at += align(len(r))
	}
	return b, nil
}

// Table is a table in memory that another process may write to. Each byte is read once at each use, and checked.
type Table struct {
	tableBytes  []byte
	contextID   uint64
	memberCount int
	// Offsets in tableBytes. The ranks are in the order of their nonces.
	offsetsAt    int
	ranksAt      int
	recordsAt    int
	capabilities [][]byte
	decision     Decision
}

// Record is a member in a table.
type Record struct {
	Nonce       uint64
	CardEdition uint32
	// Encoded. It must not be changed.
	Capabilities []byte
	Card         []byte // Encoded.
	// Of the communicator, under cid.PolicyGather.
	LocalID cid.Local
}

// OpenTable checks the head of a table of a group of that size, and returns it. It keeps b. It reads no record.
func OpenTable(b []byte, size int) (*Table, error) {
	if len(b) < tableHeader {
		return nil, fmt.Errorf("a table of %d bytes", len(b))
	}
	head := slices.Clone(b[:tableHeader])
	if v := binary.LittleEndian.Uint32(head); v != Version {
		return nil, fmt.Errorf("table of version %d, and this program speaks %d: build all programs of a job with the same version of ferry", v, Version)
	}
	if n := binary.LittleEndian.Uint32(head[4:]); uint64(n) != uint64(size) {
		return nil, fmt.Errorf("a table of %d members in place of %d", n, size)
	}
	t := &Table{memberCount: size, contextID: binary.LittleEndian.Uint64(head[8:])}
	length, decision := binary.LittleEndian.Uint64(head[16:]), uint64(binary.LittleEndian.Uint32(head[24:]))
	switch begin := uint64(align(tableHeader+int(decision))) + 8*uint64(size); {
	case t.contextID == 0:
		return nil, errors.New("a table without a context id")
	case length > uint64(len(b)) || decision > maxDecision || begin > length:
		return nil, fmt.Errorf("a table of %d bytes in %d, with %d of the decision", length, len(b), decision)
	case length > begin+8+MaxMember*uint64(size):
		return nil, fmt.Errorf("a table of %d bytes for %d members, over %d per member", length, size, MaxMember)
	}
	t.tableBytes = b[:length:length]
	t.offsetsAt = align(tableHeader + int(decision))
	t.ranksAt = t.offsetsAt + 4*size
	t.recordsAt = t.ranksAt + 4*size
	return t, t.decode(slices.Clone(t.tableBytes[tableHeader : tableHeader+decision]))
}

func (t *Table) decode(b []byte) error {
	var d tableDecision
	if err := codec().Unmarshal(b, &d); err != nil {
		return err
	}
	t.capabilities = d.Capabilities
	t.decision = Decision{ChosenCapabilities: pml.Capabilities{PML: d.PML, Version: d.Version, Detail: d.Detail}, IsFirst: d.IsFirst,
		IDs: cid.Decision{Policy: cid.Policy(d.Policy), CommonID: cid.Local(d.CommonID)}, ReconnectPairs: d.ReconnectPairs}
	if p := t.decision.IDs.Policy; p < cid.PolicyAgree || p > cid.PolicyLazy || p == cid.PolicyAgree && !t.decision.IDs.CommonID.Valid() {
		return fmt.Errorf("a table with policy %v and id %v", p, t.decision.IDs.CommonID)
	}
	for _, p := range d.ReconnectPairs {
		if p.LowerRank >= p.HigherRank || uint64(p.HigherRank) >= uint64(t.memberCount) {
			return fmt.Errorf("a table with a pair of rank %d and %d", p.LowerRank, p.HigherRank)
		}
	}
	return nil
}

// ID returns the context id of the communicator.
func (t *Table) ID() uint64 { return t.contextID }

// Decision returns the decision. Its slices must not be changed.
func (t *Table) Decision() Decision { return t.decision }

// Bytes returns the bytes of the table, which are shared and must not be changed.
func (t *Table) Bytes() []byte { return t.tableBytes }

// word returns the u32 at an offset that is in the table.
func (t *Table) word(at int) uint32 {
	var b [4]byte
	copy(b[:], t.tableBytes[at:])
	return binary.LittleEndian.Uint32(b[:])
}

// Record returns the record of a rank, which is in range. Its card is a copy, appended to card.
func (t *Table) Record(rank int, card []byte) (Record, error) {
	at := t.recordsAt + 8*int(t.word(t.offsetsAt+4*rank))
	if at+recordSize > len(t.tableBytes) {
		return Record{}, fmt.Errorf("record of rank %d at %d in a table of %d bytes", rank, at, len(t.tableBytes))
	}
	var head [recordSize]byte
	copy(head[:], t.tableBytes[at:])
	r := Record{
		LocalID:     cid.Local(binary.LittleEndian.Uint32(head[4:])),
		Nonce:       nonceOf(head[:]),
		CardEdition: binary.LittleEndian.Uint32(head[16:]),
	}
	index, length := int(binary.LittleEndian.Uint16(head[20:])), int(binary.LittleEndian.Uint16(head[22:]))
	if got := binary.LittleEndian.Uint32(head[:]); uint64(got) != uint64(rank) || r.Nonce == 0 || index >= len(t.capabilities) || at+recordSize+length > len(t.tableBytes) {
		return Record{}, fmt.Errorf("record of rank %d with rank %d, nonce %#x, capabilities %d and a card of %d bytes", rank, got, r.Nonce, index, length)
	}
	r.Capabilities = t.capabilities[index]
	r.Card = append(card, t.tableBytes[at+recordSize:][:length]...)
	return r, nil
}

// Nonce returns the nonce of a rank, which is in range, or 0 if the table has no proper record of it.
func (t *Table) Nonce(rank int) uint64 {
	at := t.recordsAt + 8*int(t.word(t.offsetsAt+4*rank))
	if at+recordSize > len(t.tableBytes) {
		return 0
	}
	var head [16]byte
	copy(head[:], t.tableBytes[at:])
	return nonceOf(head[:])
}

// rankAt returns the rank at an index of the order of the nonces.
func (t *Table) rankAt(i int) int {
	return int(min(uint64(t.word(t.ranksAt+4*i)), uint64(t.memberCount-1)))
}

// CheckOrder returns an error if Find does not find all members, or if two have one nonce.
func (t *Table) CheckOrder() error {
	last := uint64(0)
	for i := range t.memberCount {
		rank := t.rankAt(i)
		nonce := t.Nonce(rank)
		if nonce <= last {
			return fmt.Errorf("rank %d at index %d of the order of the nonces, with nonce %#x after %#x", rank, i, nonce, last)
		}
		last = nonce
	}
	return nil
}

// Find returns the rank with a nonce, or -1.
func (t *Table) Find(nonce uint64) int {
	i := sort.Search(t.memberCount, func(i int) bool { return t.Nonce(t.rankAt(i)) >= nonce })
	if i == t.memberCount {
		return -1
	}
	if rank := t.rankAt(i); nonce != 0 && t.Nonce(rank) == nonce {
		return rank
	}
	return -1
}

// Capabilities returns the different capabilities of the members, encoded. They must not be changed.
func (t *Table) Capabilities() [][]byte { return t.capabilities }
