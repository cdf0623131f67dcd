package cid

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/framework"
)

// Summary has the information that decides about the ids of a communicator, from the candidate ids of some of its
// members. Its size does not depend on the number of members, unless their generations differ. Summaries are immutable.
type Summary struct {
	// Policy is the proposed policy that requires least of the members.
	Policy Policy
	// LowestFullRank is the lowest rank of a member without candidate ids, or NoRank.
	LowestFullRank uint32
	// CommonIndices has the indices that are candidates of all members, ascending. It is empty unless Policy is PolicyAgree.
	CommonIndices []CommonIndex
}

// CommonIndex is an index that is a candidate of all members of a Summary.
type CommonIndex struct {
	Index uint32
	// UsedGens has the generations that members have used last on the index, ascending, each once.
	UsedGens []uint32
}

// NoRank is the rank of no member.
const NoRank = ^uint32(0)

// Summarize returns the summary of one member's candidate ids, and the id that the member gets under
// PolicyGather, which is NoLocal if it has no candidates. Malformed candidate ids return an error that wraps
// framework.ErrTransport.
func Summarize(rank uint32, encoded []byte) (Summary, Local, error) {
	o, err := decodeCandidates(encoded)
	if err != nil {
		return Summary{}, NoLocal, fmt.Errorf("cid: candidate ids of member %d: %v: %w", rank, err, framework.ErrTransport)
	}
	s := Summary{Policy: max(o.policy, PolicyAgree), LowestFullRank: NoRank}
	if len(o.entries) == 0 {
		s.LowestFullRank = rank
		return s, NoLocal, nil
	}
	if s.Policy == PolicyAgree {
		for _, e := range o.entries {
			c := CommonIndex{Index: e.Index()}
			if gen := e.Gen(); gen != 0 {
				c.UsedGens = []uint32{gen}
			}
			s.CommonIndices = append(s.CommonIndices, c)
		}
	}
	first := o.entries[0]
	return s, MakeLocal(first.Index(), nextGen(first.Gen())), nil
}

// Merge returns the summary of the members of both. It is associative and commutative.
func (s Summary) Merge(o Summary) Summary {
	merged := Summary{Policy: max(s.Policy, o.Policy), LowestFullRank: min(s.LowestFullRank, o.LowestFullRank)}
	if merged.Policy != PolicyAgree {
		return merged
	}
	for _, c := range s.CommonIndices {
		i, ok := slices.BinarySearchFunc(o.CommonIndices, c.Index, func(c CommonIndex, index uint32) int { return cmp.Compare(c.Index, index) })
		if !ok {
			continue
		}
		used := slices.Concat(c.UsedGens, o.CommonIndices[i].UsedGens)
		slices.Sort(used)
		merged.CommonIndices = append(merged.CommonIndices, CommonIndex{c.Index, slices.Compact(used)})
	}
	return merged
}

// Decide returns the decision of the package function Decide for the candidate ids of all members. Under
// PolicyGather its field MemberIDs is nil, and Summarize returns the id of each member.
func (s Summary) Decide(members int) (Decision, error) {
	if s.Policy == PolicyLazy {
		return Decision{Policy: PolicyLazy}, nil
	}
	if s.LowestFullRank != NoRank {
		return Decision{}, noIndex(int(s.LowestFullRank), members)
	}
	for _, c := range s.CommonIndices {
		if gen, ok := unusedGen(slices.Clone(c.UsedGens)); ok {
			return Decision{Policy: PolicyAgree, CommonID: MakeLocal(c.Index, gen)}, nil
		}
	}
	return Decision{Policy: PolicyGather}, nil
}

// Check returns an error if a summary of another process is not one that Merge can return.
func (s Summary) Check() error {
	if s.Policy < PolicyAgree || s.Policy > PolicyLazy || s.Policy != PolicyAgree && len(s.CommonIndices) > 0 {
		return fmt.Errorf("cid: summary with policy %v and %d common indices", s.Policy, len(s.CommonIndices))
	}
	for i, c := range s.CommonIndices {
		if c.Index >= 1<<IndexBits || i > 0 && c.Index <= s.CommonIndices[i-1].Index {
			return fmt.Errorf("cid: summary with index %d at %d", c.Index, i)
		}
		for j, gen := range c.UsedGens {
			if gen == 0 || gen > MaxGen || j > 0 && gen <= c.UsedGens[j-1] {
				return fmt.Errorf("cid: summary with generation %d of index %d", gen, c.Index)
			}
		}
	}
	return nil
}
