package bootstraptest

import (
	"context"
	"fmt"
	"strings"
)

// Guarantees are those of the contract that a client may lack whose constructs go through
// an operation of its launcher (meet.Exchange). A case says which it needs (Want.Needs).
type Guarantees uint

// The guarantees.
const (
	// Subsets: processes that are not of a group need not come.
	Subsets Guarantees = 1 << iota
	// Overlap: a process is in several fences and constructs at a time, in whatever order.
	Overlap
	// Names: who has not come by the deadline is named, and those who came go on.
	Names
	// Withdrawal: a call that was given up is as if it had not been made.
	Withdrawal
	// Deaths: a call ends with the death of a member, and the others go on.
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

// Without returns factory without the jobs for cases that need what is lacking: they are
// skipped, and say so.
func Without(lacking Guarantees, factory Factory) Factory {
	return func(ctx context.Context, want Want) (*Job, error) {
		if needs := want.Needs & lacking; needs != 0 {
			return nil, fmt.Errorf("it is not guaranteed here: %v: %w", needs, ErrSkip)
		}
		return factory(ctx, want)
	}
}
