package pml

import (
	"fmt"
	"strings"
)

// Learnt is what a PML has learnt of large messages of one kind that came from a process.
type Learnt struct {
	Above     int64       `json:"above"`     // bytes
	UpTo      int64       `json:"up_to"`     // 0: any
	Allocated bool        `json:"allocated"` // the sender had them in memory from Allocate
	Window    bool        `json:"window"`    // several were under way at a time
	BothWays  bool        `json:"both_ways"` // others went the opposite way
	Ways      []LearntWay `json:"ways"`
	Tries     uint64      `json:"tries"` // of another way than the best, after the first messages
}

// LearntWay is what has been learnt of one way.
type LearntWay struct {
	Way      string  `json:"way"`
	Messages uint64  `json:"messages"` // that were measured
	GBs      float64 `json:"gb_per_s"`
	Used     bool    `json:"used"` // the next message takes it, unless it tries another
}

// String describes it in a line.
func (l Learnt) String() string {
	var ways []string
	for _, w := range l.Ways {
		used := ""
		if w.Used {
			used = ", used"
		}
		ways = append(ways, fmt.Sprintf("%s %.1f GB/s (%d measured%s)", w.Way, w.GBs, w.Messages, used))
	}
	return fmt.Sprintf("%s: %s; tries: %d", l.Kind(), strings.Join(ways, ", "), l.Tries)
}

// Kind says which messages it is about.
func (l Learnt) Kind() string {
	size := fmt.Sprintf("above %d KiB", l.Above>>10)
	if l.UpTo > 0 {
		size = fmt.Sprintf("%d to %d KiB", l.Above>>10, l.UpTo>>10)
	}
	memory, depth := "ordinary", "alone"
	if l.Allocated {
		memory = "AllocMem"
	}
	switch {
	case l.Window && l.BothWays:
		depth = "in windows both ways"
	case l.Window:
		depth = "in a window"
	case l.BothWays:
		depth = "while one went the opposite way"
	}
	return fmt.Sprintf("%s, %s memory, %s", size, memory, depth)
}
