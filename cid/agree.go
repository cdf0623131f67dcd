package cid

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/framework"
)

// Decision is what the members of a new communicator know of each other's
// local ids. All members compute the same one from the same offers.
type Decision struct {
	// Policy is PolicyAgree, PolicyGather or PolicyLazy.
	Policy Policy
	// Common is every member's id under PolicyAgree, else NoLocal.
	Common Local
	// Each holds the members' own ids, in the order of the offers, under
	// PolicyGather; else it is nil.
	Each []Local
}

// Local returns the id of the member whose offer was the i-th: what that member
// gives to Table.Accept. It is NoLocal under PolicyLazy, where a member calls
// Release and Reserve, and the others learn its id by an Exchange.
func (d Decision) Local(i int) Local {
	if d.Each != nil {
		return d.Each[i]
	}
	return d.Common
}

// Decide settles how the members of a new communicator come to their local
// ids, given all their offers in the order of the group. It is pure: equal
// offers give equal decisions in all members. When members propose different
// policies, what asks least of the members wins: lazy, then gather, then agree.
// Without a common index, agreement becomes gather.
//
// A malformed offer is an error that wraps framework.ErrTransport; a member
// that has no free index is one that wraps framework.ErrUnsupported. Both name
// the member, and reach all members alike.
func Decide(offers [][]byte) (Decision, error) {
	os, err := decodeOffers(offers)
	if err != nil {
		return Decision{}, err
	}
	if len(os) == 0 {
		return Decision{}, errors.New("cid: no offers: a communicator has at least one member")
	}
	policy := PolicyAgree
	for _, o := range os {
		policy = max(policy, o.policy)
	}
	if policy == PolicyLazy {
		return Decision{Policy: PolicyLazy}, nil
	}
	for i, o := range os {
		if len(o.entries) == 0 {
			return Decision{}, noIndex(i, len(os))
		}
	}
	if policy == PolicyAgree {
		if l, ok := agree(os); ok {
			return Decision{Policy: PolicyAgree, Common: l}, nil
		}
	}
	each := make([]Local, len(os))
	for i, o := range os {
		each[i] = MakeLocal(o.entries[0].Index(), nextGen(o.entries[0].Gen()))
	}
	return Decision{Policy: PolicyGather, Each: each}, nil
}

// noIndex returns the error for a member with a full table.
func noIndex(rank, members int) error {
	return fmt.Errorf("cid: member %d of %d has no communicator id left: close communicators there: %w", rank, members, framework.ErrUnsupported)
}

// agree returns the id that all members of a new communicator take: the lowest
// index that is in each of their offers, of which there is one at least, with a
// generation that no member used last on it. It does not depend on the order of the
// offers. The result is false if no index is common.
func agree(os []Offer) (Local, bool) {
	at := make([]int, len(os)) // how far each offer is read
	lasts := make([]uint32, 0, len(os))
next:
	for _, first := range os[0].entries {
		lasts = lasts[:0]
		for i, o := range os {
			for at[i] < len(o.entries) && o.entries[at[i]].Index() < first.Index() {
				at[i]++
			}
			if at[i] == len(o.entries) {
				return NoLocal, false
			}
			if o.entries[at[i]].Index() != first.Index() {
				continue next
			}
			if gen := o.entries[at[i]].Gen(); gen != 0 {
				lasts = append(lasts, gen)
			}
		}
		if gen, ok := newGen(lasts); ok {
			return MakeLocal(first.Index(), gen), true
		}
	}
	return NoLocal, false
}

// newGen returns a generation that differs from all of lasts, which it sorts.
//
// Generations wrap, so that a maximum means nothing: of 4095 and 1 either may
// be the newer. They are points on a ring of MaxGen values instead. The largest
// stretch of the ring without a point is what nobody used for the longest time,
// and the new generation is the first in it: the one after the foremost member,
// when the members are close together, wherever the ring's seam is. If the
// stretch is empty, all MaxGen values are somebody's last, which takes that
// many members with different histories; the index can't be used then, and the
// result is false. Otherwise the result is not in lasts, because the stretch
// holds no point. Among equal stretches the first by value is taken, so that
// the result depends on the set alone.
func newGen(lasts []uint32) (uint32, bool) {
	slices.Sort(lasts)
	lasts = slices.Compact(lasts)
	if len(lasts) == 0 {
		return 1, true
	}
	var after, longest uint32
	for i, g := range lasts {
		end := lasts[0] + MaxGen // the first point again, one round later
		if i+1 < len(lasts) {
			end = lasts[i+1]
		}
		if gap := end - g - 1; gap > longest {
			after, longest = g, gap
		}
	}
	return nextGen(after), longest > 0
}
