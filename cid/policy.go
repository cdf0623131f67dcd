package cid

import (
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/framework"
)

// Policy says how the members of a communicator come to know each other's
// local ids. It is the parameter cid.policy.
type Policy uint8

const (
	// Auto chooses for each communicator, by its size and by what the
	// bootstrap carries.
	Auto Policy = iota
	// PolicyAgree lets the members' free indices travel with the construct; all
	// take the lowest common one. No exchange ever follows. Without a common
	// index it becomes PolicyGather.
	PolicyAgree
	// PolicyGather lets one index of each member travel with the construct.
	// Each member keeps an array; no exchange follows.
	PolicyGather
	// PolicyLazy lets nothing travel: two members learn each other's ids with
	// the first message between them. See Exchange.
	PolicyLazy
)

var policyNames = [...]string{"auto", "agree", "gather", "lazy"}

// String returns the name that ParsePolicy reads.
func (p Policy) String() string {
	if int(p) < len(policyNames) {
		return policyNames[p]
	}
	return fmt.Sprintf("policy(%d)", uint8(p))
}

// ParsePolicy reads "auto", "agree", "gather" or "lazy". Any other text is an
// error that wraps framework.ErrConfig.
func ParsePolicy(s string) (Policy, error) {
	if i := slices.Index(policyNames[:], s); i >= 0 {
		return Policy(i), nil
	}
	return Auto, fmt.Errorf("cid.policy: unknown policy %q: use auto, agree, gather or lazy: %w", s, framework.ErrConfig)
}

const (
	// agreeIndices is how many indices an offer holds at most. Members that
	// create communicators in step need one. The others let a process that is
	// in a few overlapping groups still find a common one.
	agreeIndices = 16

	// offerBudget bounds, in bytes, what the offers of all members weigh
	// together, for each member receives them all. 256 KiB are full offers for
	// 3855 members, and single indices for 32768. It follows from arithmetic:
	// four of the bootstrap contract's largest payloads.
	offerBudget = 256 << 10
)

// plan decides what a member puts into its offer: the policy to propose, and
// how many indices. room is what is left for it in the construct's payload, in
// bytes. A named policy is kept if one index fits.
func (p Policy) plan(members, room int) (Policy, int) {
	if p != PolicyGather && p != PolicyAgree && p != Auto {
		return PolicyLazy, 0
	}
	n := min((room-offerHeader)/offerEntry, agreeIndices)
	if p == Auto {
		n = min(n, (offerBudget/max(members, 1)-offerHeader)/offerEntry)
	}
	switch {
	case n < 1:
		return PolicyLazy, 0
	case p == PolicyGather || p == Auto && n == 1:
		return PolicyGather, 1
	}
	return PolicyAgree, n
}
