package wireup

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
)

// Part is the data of some members of a group, for the decision about all of them and for the table. Parts of different members are merged.
type Part struct {
	summary
	// Of each member, in any order; see record.
	encodedRecords []byte
}

// summary is the part of a Part that does not grow with the number of members, as a CBOR array.
type summary struct {
	_            struct{} `cbor:",toarray"`
	MemberCount  uint32
	Capabilities []Capability
	// The next three are cid.Summary.
	Policy         uint8
	LowestFullRank uint32
	CommonIndices  []commonIndex
	// Transports that members could not open, of the lowest mostExamples ranks.
	OpenFailures     []openFailure
	OpenFailureCount uint32
	// At most maxPairs, the lowest ones, ascending.
	EndedPairs []endedPair
}

type commonIndex struct {
	_        struct{} `cbor:",toarray"`
	Index    uint32
	UsedGens []uint32
}

type openFailure struct {
	_    struct{} `cbor:",toarray"`
	Rank uint32
	Text string
}

// endedPair is an Ended of a member.
type endedPair struct {
	_                struct{} `cbor:",toarray"`
	FromRank, ToRank uint32
	// Of the incarnation.
	ToNonce        uint64
	ReconnectCount uint32
}

// maxPairs bounds the pairs that reconnect with one communicator. Others wait for the next one.
const maxPairs = 4096

// MaxMember is the largest number of bytes of a member in a table.
const MaxMember = 4 << 10

// A record is the data of one member, and then its card.
//
//	0 u32 rank in the group   4 u32 id under cid.PolicyGather   8 u64 nonce
//	16 u32 edition of the card   20 u16 index of its capabilities   22 u16 length of the card
const recordSize = 24

// NewPart returns the part of one member, of that rank in the group.
func NewPart(rank int, p Payload) (Part, error) {
	if recordSize+len(p.Card) > MaxMember {
		return Part{}, fmt.Errorf("%w: a business card of %d bytes, at most %d; use fewer transports or addresses (btl, btl.tcp.if_include)",
			framework.ErrUnsupported, len(p.Card), MaxMember-recordSize)
	}
	card, err := DecodeCard(p.Card)
	if err != nil {
		return Part{}, err
	}
	if _, err := DecodeCapabilities(p.Capabilities); err != nil {
		return Part{}, err
	}
	ids, own, err := cid.Summarize(uint32(rank), p.GroupIDs)
	if err != nil {
		return Part{}, err
	}
	part := Part{summary: summary{
		MemberCount:  1,
		Capabilities: []Capability{{EncodedList: p.Capabilities, MemberCount: 1, LowestRanks: []uint32{uint32(rank)}}},
	}}
	part.setIDs(ids)
	if text := card.Failure(); text != "" {
		part.OpenFailures, part.OpenFailureCount = []openFailure{{Rank: uint32(rank), Text: text}}, 1
	}
	for _, e := range p.GroupEnded {
		part.EndedPairs = append(part.EndedPairs, endedPair{FromRank: uint32(rank), ToRank: e.Rank, ToNonce: e.Nonce, ReconnectCount: e.Epoch})
	}
	slices.SortFunc(part.EndedPairs, comparePairs)
	r := make([]byte, recordSize, recordSize+len(p.Card))
	binary.LittleEndian.PutUint32(r, uint32(rank))
	binary.LittleEndian.PutUint32(r[4:], uint32(own))
	binary.LittleEndian.PutUint64(r[8:], p.Nonce)
	binary.LittleEndian.PutUint32(r[16:], p.Edition)
	binary.LittleEndian.PutUint16(r[22:], uint16(len(p.Card)))
	part.encodedRecords = append(r, p.Card...)
	return part, nil
}

func (s *summary) setIDs(ids cid.Summary) {
	s.Policy, s.LowestFullRank, s.CommonIndices = uint8(ids.Policy), ids.LowestFullRank, nil
	for _, c := range ids.CommonIndices {
		s.CommonIndices = append(s.CommonIndices, commonIndex{Index: c.Index, UsedGens: c.UsedGens})
	}
}

func (s *summary) ids() cid.Summary {
	ids := cid.Summary{Policy: cid.Policy(s.Policy), LowestFullRank: s.LowestFullRank}
	for _, c := range s.CommonIndices {
		ids.CommonIndices = append(ids.CommonIndices, cid.CommonIndex{Index: c.Index, UsedGens: c.UsedGens})
	}
	return ids
}

func comparePairs(a, b endedPair) int {
	return cmp.Or(cmp.Compare(a.FromRank, b.FromRank), cmp.Compare(a.ToRank, b.ToRank), cmp.Compare(a.ToNonce, b.ToNonce), cmp.Compare(a.ReconnectCount, b.ReconnectCount))
}

// Merge adds the members of other, which are not in p. It is associative. It takes ownership of other. An error wraps
// framework.ErrUnsupported.
func (p *Part) Merge(other Part) error {
	if p.MemberCount == 0 {
		*p = other
		return nil
	}
	remap := make([]uint16, len(other.Capabilities))
	for i, c := range other.Capabilities {
		var at int
		p.Capabilities, at = AddCapability(p.Capabilities, c)
		remap[i] = uint16(at)
	}
	if len(p.Capabilities) > maxCapabilities {
		return fmt.Errorf("%w: the members have more than %d different lists of PMLs; give all the same parameters and libraries",
			framework.ErrUnsupported, maxCapabilities)
	}
	p.setIDs(p.ids().Merge(other.ids()))
	p.MemberCount += other.MemberCount
	p.OpenFailureCount += other.OpenFailureCount
	p.OpenFailures = append(p.OpenFailures, other.OpenFailures...)
	slices.SortFunc(p.OpenFailures, func(a, b openFailure) int { return cmp.Compare(a.Rank, b.Rank) })
	p.OpenFailures = p.OpenFailures[:min(len(p.OpenFailures), mostExamples)]
	p.EndedPairs = append(p.EndedPairs, other.EndedPairs...)
	slices.SortFunc(p.EndedPairs, comparePairs)
	p.EndedPairs = p.EndedPairs[:min(len(p.EndedPairs), maxPairs)]
	begin := len(p.encodedRecords)
	p.encodedRecords = append(p.encodedRecords, other.encodedRecords...)
	if slices.IndexFunc(remap, func(at uint16) bool { return at != 0 }) < 0 {
		return nil
	}
	for b := p.encodedRecords[begin:]; len(b) > 0; b = b[recordLength(b):] {
		binary.LittleEndian.PutUint16(b[20:], remap[binary.LittleEndian.Uint16(b[20:])])
	}
	return nil
}

// recordLength returns the length of a record with its card.
func recordLength(b []byte) int { return recordSize + int(binary.LittleEndian.Uint16(b[22:])) }

// encode appends the bytes of a part.
func (p *Part) encode(b []byte) ([]byte, error) {
	head, err := codec().Marshal(p.summary)
	if err != nil {
		return nil, err
	}
	b = slices.Grow(b, 4+len(head)+len(p.encodedRecords))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(head)))
	b = append(b, head...)
	return append(b, p.encodedRecords...), nil
}

// decodePart decodes the part of another process, in a group of that size. It keeps b.
func decodePart(b []byte, size int) (Part, error) {
	var p Part
	if len(b) < 4 || uint64(len(b)-4) < uint64(binary.LittleEndian.Uint32(b)) {
		return p, errors.New("the part of a table is cut")
	}
	n := 4 + int(binary.LittleEndian.Uint32(b))
	if err := codec().Unmarshal(b[4:n], &p.summary); err != nil {
		return p, err
	}
	p.encodedRecords = slices.Clip(b[n:])
	if err := p.summary.check(size); err != nil {
		return p, err
	}
	count := uint32(0)
	for r := p.encodedRecords; len(r) > 0; count++ {
		if len(r) < recordSize || recordLength(r) > min(len(r), MaxMember) {
			return p, fmt.Errorf("record %d of the part of a table is cut or longer than %d bytes", count, MaxMember)
		}
		rank, index := binary.LittleEndian.Uint32(r), binary.LittleEndian.Uint16(r[20:])
		if uint64(rank) >= uint64(size) || int(index) >= len(p.Capabilities) {
			return p, fmt.Errorf("record %d of the part of a table is of rank %d with capabilities %d", count, rank, index)
		}
		r = r[recordLength(r):]
	}
	if count != p.MemberCount {
		return p, fmt.Errorf("the part of a table has %d members in place of %d", count, p.MemberCount)
	}
	return p, nil
}

// check returns an error if another process sent a summary that Merge cannot return.
func (s *summary) check(size int) error {
	outside := func(rank uint32) bool { return uint64(rank) >= uint64(size) }
	if s.MemberCount == 0 || uint64(s.MemberCount) > uint64(size) || len(s.Capabilities) == 0 || len(s.Capabilities) > maxCapabilities ||
		len(s.OpenFailures) > mostExamples || int(s.OpenFailureCount) < len(s.OpenFailures) || len(s.EndedPairs) > maxPairs {
		return fmt.Errorf("a summary of %d members with %d capabilities, %d failures and %d pairs", s.MemberCount, len(s.Capabilities), len(s.OpenFailures), len(s.EndedPairs))
	}
	total := uint64(0)
	for _, c := range s.Capabilities {
		total += uint64(c.MemberCount)
		if c.MemberCount == 0 || len(c.LowestRanks) != min(int(c.MemberCount), mostExamples) || slices.ContainsFunc(c.LowestRanks, outside) || !slices.IsSorted(c.LowestRanks) {
			return fmt.Errorf("a summary with capabilities of %d members, the lowest %d", c.MemberCount, c.LowestRanks)
		}
	}
	if total != uint64(s.MemberCount) {
		return fmt.Errorf("a summary of %d members with capabilities of %d", s.MemberCount, total)
	}
	for _, f := range s.OpenFailures {
		if outside(f.Rank) || len(f.Text) > maxText {
			return fmt.Errorf("a summary with a failure of rank %d", f.Rank)
		}
	}
	for _, e := range s.EndedPairs {
		if outside(e.FromRank) || outside(e.ToRank) {
			return fmt.Errorf("a summary with a pair of rank %d and %d", e.FromRank, e.ToRank)
		}
	}
	if s.LowestFullRank != cid.NoRank && outside(s.LowestFullRank) {
		return fmt.Errorf("a summary with no index at rank %d", s.LowestFullRank)
	}
	return s.ids().Check()
}
