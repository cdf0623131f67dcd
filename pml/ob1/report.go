package ob1

import (
	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/pml"
)

// report returns what has been learnt.
func (in *incoming) report() (all []pml.Learnt) {
	if in.learnt == nil {
		return nil
	}
	for memory := range btl.Memories {
		for class := range classes {
			for depth := range depths {
				l := in.learnt[memory][depth][class]
				if l == nil {
					continue
				}
				r := pml.Learnt{Above: 1 << (class + leastClass), Allocated: memory == btl.Allocated, Window: depth == window || depth == bothWays, BothWays: depth >= depthsSent, Tries: l.Tries()}
				if class < classes-1 {
					r.UpTo = 2 * r.Above
				}
				for _, w := range l.Learnt() {
					r.Ways = append(r.Ways, pml.LearntWay{Way: w.Way.String(), Messages: w.Messages, GBs: w.GBs, Used: w.Used})
				}
				if len(r.Ways) > 0 {
					all = append(all, r)
				}
			}
		}
	}
	return all
}
