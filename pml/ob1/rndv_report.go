package ob1

import (
	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/pml"
)

// estimates returns the measured speeds by kind of message.
func (in *largeReceives) estimates() (all []pml.TransferEstimates) {
	if in.selections == nil {
		return nil
	}
	for memory := range btl.Memories {
		for class := range classes {
			for pattern := range patterns {
				l := in.selections[memory][pattern][class]
				if l == nil {
					continue
				}
				r := pml.TransferEstimates{Above: 1 << (class + minClassLog), Allocated: memory == btl.Allocated, Window: pattern == windowed || pattern == duplex, BothWays: pattern >= sentPatterns, Probes: l.Probes()}
				if class < classes-1 {
					r.UpTo = 2 * r.Above
				}
				for _, w := range l.Estimates() {
					r.Protocols = append(r.Protocols, pml.ProtocolEstimate{Protocol: w.Option.String(), Messages: w.Messages, GBs: w.GBs, Used: w.IsBest})
				}
				if len(r.Protocols) > 0 {
					all = append(all, r)
				}
			}
		}
	}
	return all
}
