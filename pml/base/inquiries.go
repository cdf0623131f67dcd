package base

import (
	"iter"

	"github.com/ferrympi/ferry/framework"
)

// maxInquired bounds the communicators in which a wait for any source asks all members whether they are in the
// communicator. In larger ones it asks the used members and those named in events, because each refusal causes an event.
const maxInquired = 1024

// Inquiries are the events after which waits ask members (pml.Module's Inquire).
type Inquiries struct {
	eventCount uint64
	namedProcs map[framework.ProcID]struct{}
}

// RecordEvent records an event.
func (q *Inquiries) RecordEvent() { q.eventCount++ }

// RecordProcess records the process that an event names. RecordEvent follows.
func (q *Inquiries) RecordProcess(by framework.ProcID) {
	if q.namedProcs == nil {
		q.namedProcs = map[framework.ProcID]struct{}{}
	}
	q.namedProcs[by] = struct{}{}
}

// InquiryMark is the number of the last event after which a communicator has sent inquiries, plus one.
type InquiryMark uint64

// IsDue reports whether an event has occurred since the last call, and true for the first call.
func (a *InquiryMark) IsDue(q *Inquiries) bool {
	now := InquiryMark(q.eventCount + 1)
	isDue := *a != now
	*a = now
	return isDue
}

// RanksToAsk returns the ranks that a wait for any source asks. used has the state of the used members.
func RanksToAsk[P Process, V comparable](c *Comm[P], used *Table[V], q *Inquiries) iter.Seq[int] {
	return func(yield func(int) bool) {
		if c.Len() <= maxInquired {
			for rank := range c.Len() {
				if !yield(rank) {
					return
				}
			}
			return
		}
		for rank := range used.All() {
			if !yield(rank) {
				return
			}
		}
		for id := range q.namedProcs {
			first := c.Spec.Members.First(id)
			if first < 0 {
				continue
			}
			for _, rank := range c.roster.ranksOf(c.roster.firstRank(first)) {
				if !yield(rank) {
					return
				}
			}
		}
	}
}
