package cid

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/framework"
)

// Decision is the result of a new communicator's agreement on local ids. All members compute
// the same one from the same candidate ids.
type Decision struct {
	// Policy is PolicyAgree, PolicyGather or PolicyLazy.
	Policy Policy
	// CommonID is every member's id under PolicyAgree, else NoLocal.
	CommonID Local
	// MemberIDs holds the members' own ids under PolicyGather, in the order of the
	// members. It is nil under other policies.
	MemberIDs []Local
}

// Local returns the id of the i-th member, for that member's call of Table.Accept. It is
// NoLocal under PolicyLazy. A member then calls Release and Reserve, and other members learn
// its id by an Exchange.
func (d Decision) Local(i int) Local {
	if d.MemberIDs != nil {
		return d.MemberIDs[i]
	}
	return d.CommonID
}

// Decide decides on the local ids of a new communicator, from the candidate ids of all members
// in the order of the group. It is pure, so that all members decide alike. If members propose
// different policies, the one that requires least of them is used, in the order lazy, gather,
// agree. Without a common index, agree becomes gather.
//
// Malformed candidate ids return an error that wraps framework.ErrTransport, and a member
// without a free index one that wraps framework.ErrUnsupported. Both name the member, and all
// members get them.
func Decide(candidates [][]byte) (Decision, error) {
	os, err := decodeAllCandidates(candidates)
	if err != nil {
		return Decision{}, err
	}
	if len(os) == 0 {
		return Decision{}, errors.New("cid: no candidate ids: a communicator has at least one member")
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
			return Decision{Policy: PolicyAgree, CommonID: l}, nil
		}
	}
	each := make([]Local, len(os))
	for i, o := range os {
		each[i] = MakeLocal(o.entries[0].Index(), nextGen(o.entries[0].Gen()))
	}
	return Decision{Policy: PolicyGather, MemberIDs: each}, nil
}

// noIndex returns the error for a member without a free index.
func noIndex(rank, members int) error {
	return fmt.Errorf("cid: no communicator id left at member %d of %d: %w: close communicators there", rank, members, framework.ErrUnsupported)
}

// agree returns the id that all members of a new communicator use. It has the lowest index
// that all members have as a candidate, and a generation that no member has used last on it.
// The result does not depend on the order of the members. It is false if no index is common.
func agree(os []Candidates) (Local, bool) {
	cursors := make([]int, len(os)) // Index of the next entry of each member.
	lasts := make([]uint32, 0, len(os))
next:
	for _, first := range os[0].entries {
		lasts = lasts[:0]
		for i, o := range os {
			for cursors[i] < len(o.entries) && o.entries[cursors[i]].Index() < first.Index() {
				cursors[i]++
			}
			if cursors[i] == len(o.entries) {
				return NoLocal, false
			}
			if o.entries[cursors[i]].Index() != first.Index() {
				continue next
			}
			if gen := o.entries[cursors[i]].Gen(); gen != 0 {
				lasts = append(lasts, gen)
			}
		}
		if gen, ok := unusedGen(lasts); ok {
			return MakeLocal(first.Index(), gen), true
		}
	}
	return NoLocal, false
}

// unusedGen returns a generation that differs from all of lasts, which it sorts. It returns
// false if there is none.
//
// Generations wrap, so that their maximum has no meaning. Of 4095 and 1, either may be the
// newer one. They are points on a ring of MaxGen values. The longest gap between two points
// has been unused for the longest time, and its first value is the result. If the members are
// close together, that is the value after the foremost one, wherever the seam of the ring is.
// The gap is empty if all MaxGen values are in lasts, which takes as many members with
// different histories. Of equal gaps the first by value is used, so that the result depends
// on the set only.
func unusedGen(lasts []uint32) (uint32, bool) {
	slices.Sort(lasts)
	lasts = slices.Compact(lasts)
	if len(lasts) == 0 {
		return 1, true
	}
	var after, longest uint32
	for i, g := range lasts {
		end := lasts[0] + MaxGen // The first point, one round later.
		if i+1 < len(lasts) {
			end = lasts[i+1]
		}
		if gap := end - g - 1; gap > longest {
			after, longest = g, gap
		}
	}
	return nextGen(after), longest > 0
}
