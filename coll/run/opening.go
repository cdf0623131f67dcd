package run

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/leaders"
)

// An instance opens in two steps. Its cards go to the ranks on a node, which join each other's
// parts. Then the verdicts of all ranks are merged on each node, among the first ranks of the
// nodes, and from these to their nodes. Messages of both steps have the pairs of a dissemination
// barrier, or some of them, because each pair has memory.

// verdict is the verdict of some ranks about an instance. Merging is commutative, associative and
// idempotent.
type verdict struct {
	// 0: none. Otherwise its kind, and below it the complement of the rank, so that the lowest rank
	// counts.
	worstFailure              uint64
	lowestTerms, highestTerms uint32
}

// failureKind is the kind of a failure. If there are several, the highest is reported, because
// others may follow from it.
type failureKind uint32

const (
	cannotJoin failureKind = iota + 1
	cannotOpen
	differentTerms
)

// verdictSize is the size of an encoded verdict in bytes.
const verdictSize = 16

// usable is the verdict of a rank with an instance that is ready, so far.
func usable(o coll.ComponentOffer) verdict {
	terms := o.Checksum()
	return verdict{lowestTerms: terms, highestTerms: terms}
}

// fail adds a failure of this rank.
func (v *verdict) fail(kind failureKind, rank int) {
	v.worstFailure = max(v.worstFailure, uint64(kind)<<32|uint64(^uint32(rank)))
}

// failJoin adds the failure of this rank to join. The failure of another rank to open its part counts
// as that of the other rank.
func (v *verdict) failJoin(rank int, err error) {
	of, isRecord := errors.AsType[*recordError](err)
	switch {
	case isRecord && of.kind == cannotOpen:
		v.fail(cannotOpen, of.rank)
	case isRecord:
		v.fail(of.kind, rank)
	case err != nil:
		v.fail(cannotJoin, rank)
	}
}

func (v *verdict) merge(other verdict) {
	v.worstFailure = max(v.worstFailure, other.worstFailure)
	v.lowestTerms, v.highestTerms = min(v.lowestTerms, other.lowestTerms), max(v.highestTerms, other.highestTerms)
}

func (v verdict) encode() []byte {
	b := binary.LittleEndian.AppendUint64(nil, v.worstFailure)
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, v.lowestTerms), v.highestTerms)
}

// decodeVerdict decodes the bytes of a peer. Terms in the wrong order differ as well.
func decodeVerdict(b []byte) verdict {
	first, second := binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:])
	return verdict{binary.LittleEndian.Uint64(b), min(first, second), max(first, second)}
}

// mergeVerdicts is the reduction of encoded verdicts.
var mergeVerdicts = coll.Reducer{IsQuick: true, Apply: func(inout, in []byte) {
	v := decodeVerdict(inout)
	v.merge(decodeVerdict(in))
	copy(inout, v.encode())
}}

// err returns the reason for which all ranks do without the instance of a component, or nil.
func (v verdict) err(component string) error {
	rank := ^uint32(v.worstFailure)
	switch kind := failureKind(v.worstFailure >> 32); {
	case kind == differentTerms:
		return fmt.Errorf("ranks on the node of rank %d have different values of coll.%s's parameters: all ranks need the same", rank, component)
	case kind == cannotOpen:
		return &recordError{int(rank), kind, component}
	case kind == cannotJoin:
		return fmt.Errorf("rank %d could not join the parts of its node", rank)
	case kind != 0:
		return fmt.Errorf("rank %d has failed for reason %d", rank, kind)
	case v.lowestTerms != v.highestTerms:
		return fmt.Errorf("nodes have different values of coll.%s's parameters: all ranks need the same", component)
	}
	return nil
}

// outcome returns the reason for which all ranks do without the instance, or nil. A failure of this
// rank has the details.
func (v verdict) outcome(component string, own error) error {
	why := v.err(component)
	if _, isRecord := errors.AsType[*recordError](own); own != nil && !isRecord {
		return own
	}
	if why == nil {
		return own
	}
	return why
}

// near returns the ranks on the node of this one.
func (k *State) near() leaders.Group {
	rank := k.env.Rank
	ranks := k.nodes.Ranks(k.nodes.Node(rank))
	return leaders.Group{Size: len(ranks), Self: k.nodes.Index(rank), Rank: func(i int) int { return ranks[i] }}
}

// first returns the first ranks of the nodes of a placement, as the one on the node of a rank
// sees them.
func first(p coll.Placement, rank int) leaders.Group {
	return leaders.Group{Size: p.Count(), Self: p.Node(rank), Rank: p.First}
}

// around returns the rank that is distance further in a group.
func around(g leaders.Group, distance int) int { return g.Rank((g.Self + distance + g.Size) % g.Size) }

// exchangeCards gives the records of all ranks of a group to all of them. records has that of
// this rank first, and then those of the ranks before it, in descending order.
func exchangeCards(s *coll.Schedule, g leaders.Group) {
	out := coll.Ref{Slot: coll.Out}
	for have := 1; have < g.Size; have *= 2 {
		n := min(have, g.Size-have) * openRecord
		s.Exchange(out, n, around(g, have), out.Plus(have*openRecord), n, around(g, -have))
	}
}

// exchangeVerdicts merges the verdicts of a group. That of this rank is at Out, which gets the result.
func exchangeVerdicts(s *coll.Schedule, g leaders.Group) {
	out, other := coll.Ref{Slot: coll.Out}, s.NewTemp(verdictSize)
	for have := 1; have < g.Size; have *= 2 {
		s.Exchange(out, verdictSize, around(g, have), other, verdictSize, around(g, -have))
		s.Combine(out, other, verdictSize)
		s.Wait()
	}
}

// exchangeAllVerdicts merges the verdicts of all ranks. near has those on the node of this one.
func exchangeAllVerdicts(s *coll.Schedule, near, first leaders.Group) {
	exchangeVerdicts(s, near)
	if first.Size == 1 {
		return
	}
	if near.Self == 0 {
		exchangeVerdicts(s, first)
	}
	near.Bcast(s, 0, coll.Ref{Slot: coll.Out}, verdictSize)
}

// carry carries out a schedule of an opening. All ranks call it. s may have no steps in some of
// them.
func (k *State) carry(ctx context.Context, s *coll.Schedule, out []byte) error {
	p := &k.peers
	p.begin(k.nextTag())
	return s.Inline(background(ctx), p, &coll.Buffers{Out: out, Temp: make([]byte, s.Temp)}, &mergeVerdicts)
}

// mergeVerdict merges the verdicts of some ranks by a schedule.
func (k *State) mergeVerdict(ctx context.Context, s *coll.Schedule, v verdict) (verdict, error) {
	b := v.encode()
	if err := k.carry(ctx, s, b); err != nil {
		return v, err
	}
	return decodeVerdict(b), nil
}
