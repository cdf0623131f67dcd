package bootstraptest

import (
	"context"
	"fmt"
	"strings"
)

// Guarantees are guarantees of the contract that clients lack whose constructs use an operation of
// their launcher (mesh.Exchange).
type Guarantees uint

// Guarantees.
const (
	// Subsets means that processes outside a group take no part.
	Subsets Guarantees = 1 << iota
	// Overlap means that a process can be in several fences and constructs at a time, in any order.
	Overlap
	// Names means that an error at the deadline names the missing members, and that the others can
	// continue.
	Names
	// Withdrawal means that a withdrawn call has no effect.
	Withdrawal
	// Deaths means that a call ends with the death of a member, and that the others can continue.
	Deaths
)

func (g Guarantees) String() string {
	var names []string
	for i, name := range []string{"subsets", "overlap", "names", "withdrawal", "deaths"} {
		if g&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// Without returns factory without the jobs for cases that need one of the lacking guarantees. It
// skips those cases with the reason.
func Without(lacking Guarantees, factory Factory) Factory {
	return func(ctx context.Context, want Want) (*Job, error) {
		if needs := want.Needs & lacking; needs != 0 {
			return nil, fmt.Errorf("it is not guaranteed here: %v: %w", needs, ErrSkip)
		}
		return factory(ctx, want)
	}
}
