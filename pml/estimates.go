package pml

import (
	"fmt"
	"strings"
)

// TransferEstimates has the estimates for one kind of large messages from a process.
type TransferEstimates struct {
	// Above and UpTo bound the length in bytes. UpTo 0 is unbounded.
	Above int64 `json:"above"`
	UpTo  int64 `json:"up_to"`
	// Allocated is set if the sender's memory is from Allocate.
	Allocated bool `json:"allocated"`
	// Window is set if several messages were in progress at a time.
	Window bool `json:"window"`
	// BothWays is set if messages were in progress in the opposite direction.
	BothWays  bool               `json:"both_ways"`
	Protocols []ProtocolEstimate `json:"ways"`
	// Probes counts the probes of other protocols than the best, after the warm-up.
	Probes uint64 `json:"tries"`
}

// ProtocolEstimate is the estimate of one rendezvous protocol.
type ProtocolEstimate struct {
	Protocol string `json:"way"`
	// Messages counts the measured messages.
	Messages uint64  `json:"messages"`
	GBs      float64 `json:"gb_per_s"`
	// Used is set if the next message uses this protocol, unless it is a probe of another one.
	Used bool `json:"used"`
}

// String returns the estimates in one line.
func (l TransferEstimates) String() string {
	var protocols []string
	for _, e := range l.Protocols {
		used := ""
		if e.Used {
			used = ", used"
		}
		protocols = append(protocols, fmt.Sprintf("%s %.1f GB/s (%d measured%s)", e.Protocol, e.GBs, e.Messages, used))
	}
	return fmt.Sprintf("%s: %s; probes: %d", l.Kind(), strings.Join(protocols, ", "), l.Probes)
}

// Kind describes the messages of the estimates.
func (l TransferEstimates) Kind() string {
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
