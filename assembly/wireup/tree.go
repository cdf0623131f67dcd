package wireup

import (
	"math/bits"
	"time"
)

// depth returns the number of rounds in which a binomial tree reaches n members.
func depth(n int) int { return bits.Len(uint(n - 1)) }

// parent returns the parent of a member other than 0 in a binomial tree.
func parent(index int) int { return index & (index - 1) }

// children returns the children of a member in the binomial tree of n members, those with the smallest
// subtrees first. The subtree of child i of index has the indices from it to the next child.
func children(index, n int) []int {
	var list []int
	for bit := 1; index&bit == 0 && index|bit < n; bit <<= 1 {
		list = append(list, index|bit)
	}
	return list
}

// Schedule has the deadlines of a creation, as times since its call.
type Schedule struct {
	timeout time.Duration
	// Number of steps in the tree, by level.
	stepsBelow []int
	treeHeight int
}

// NewSchedule returns the deadlines for a timeout of the bootstrap.
func NewSchedule(l *Layout, timeout time.Duration) Schedule {
	s := Schedule{timeout: timeout, stepsBelow: []int{0}, treeHeight: 1}
	for _, d := range l.depths() {
		s.stepsBelow = append(s.stepsBelow, s.treeHeight)
		s.treeHeight += d
	}
	return s
}

// Construct returns the deadline of the construct of a level: 7/8 of the timeout at level 0, and half of the remaining time more at each
// further level. So the members of a node have their error before a root that waits for their node has one.
func (s Schedule) Construct(level int) time.Duration {
	return s.timeout - s.timeout>>(3+level)
}

// phase is one direction of messages in the tree.
type phase int

const (
	gathering phase = iota
	distributing
	confirming
	committing
	phases
)

// message returns the deadline of a message between a parent and the child of that index in its list of children at a level.
// All members have joined by then, so that only a suspended process reaches it, and the processes next to that one reach theirs first.
// It is later than the timeout, because the other process may have begun as much later.
func (s Schedule) message(p phase, level, child int) time.Duration {
	step := s.stepsBelow[level] + child
	if p == distributing || p == committing {
		step = s.treeHeight - step
	}
	steps := int(phases) * (s.treeHeight + 1)
	return s.timeout + s.timeout*time.Duration(int(p)*(s.treeHeight+1)+step)/time.Duration(steps)
}
