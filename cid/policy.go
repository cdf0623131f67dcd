package cid

import (
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/framework"
)

// Policy is the way in which the members of a communicator learn each other's local ids. It
// is the parameter cid.policy.
type Policy uint8

const (
	// Auto selects a policy for each communicator, by its size and the room in the
	// bootstrap's payload.
	Auto Policy = iota
	// PolicyAgree sends the members' free indices with the construct. All members use
	// the lowest common one, and no exchange follows. Without a common index it becomes
	// PolicyGather.
	PolicyAgree
	// PolicyGather sends one index of each member with the construct. Each member keeps
	// an array, and no exchange follows.
	PolicyGather
	// PolicyLazy sends nothing. Two members learn each other's ids with their first
	// message, see Exchange.
	PolicyLazy
)

var policyNames = [...]string{"auto", "agree", "gather", "lazy"}

// String returns the name that ParsePolicy accepts.
func (p Policy) String() string {
	if int(p) < len(policyNames) {
		return policyNames[p]
	}
	return fmt.Sprintf("policy(%d)", uint8(p))
}

// ParsePolicy parses "auto", "agree", "gather" or "lazy". Any other text returns an error that
// wraps framework.ErrConfig.
func ParsePolicy(s string) (Policy, error) {
	if i := slices.Index(policyNames[:], s); i >= 0 {
		return Policy(i), nil
	}
	return Auto, fmt.Errorf("cid.policy: unknown policy %q: use auto, agree, gather or lazy: %w", s, framework.ErrConfig)
}

const (
	// maxAgreeIndices is the largest number of candidate ids. Members that create
	// communicators in step need one. The others let processes in a few overlapping
	// groups find a common one.
	maxAgreeIndices = 16

	// candidateBudget bounds the total size of all members' candidate ids in bytes, since
	// each member receives all of them. 256 KiB are four payloads of the bootstrap
	// contract, and suffice for full candidates of 3855 members, or one index of 32768.
	candidateBudget = 256 << 10
)

// candidatePlan returns the policy that a member proposes, and the number of its candidate
// ids. room is the space left for them in the construct's payload, in bytes. A named policy is
// kept if one index fits.
func (p Policy) candidatePlan(members, room int) (Policy, int) {
	if p != PolicyGather && p != PolicyAgree && p != Auto {
		return PolicyLazy, 0
	}
	n := min((room-headerSize)/entrySize, maxAgreeIndices)
	if p == Auto {
		n = min(n, (candidateBudget/max(members, 1)-headerSize)/entrySize)
	}
	switch {
	case n < 1:
		return PolicyLazy, 0
	case p == PolicyGather || p == Auto && n == 1:
		return PolicyGather, 1
	}
	return PolicyAgree, n
}
