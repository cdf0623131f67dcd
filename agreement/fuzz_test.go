package agreement

import (
	"testing"

	"github.com/ferrympi/ferry/cid"
)

// FuzzReceive gives a machine two arbitrary messages in each state of an instance. Decode
// rejects them, or the machine processes them without a panic.
func FuzzReceive(f *testing.F) {
	outcome := &Outcome{Operation: Shrink, FailedRanks: []int{1}, ExcludedRanks: []int{2}, ID: cid.Extended{Base: 7, Sub: 1}}
	for _, m := range []Message{
		{Kind: Ask, Ballot: 2},
		{Kind: Contribute, Ballot: 1, Contribution: &Contribution{Operation: Agree, Flags: 3, FailedRanks: []int{2}}, Outcome: outcome, HeldBallot: 1},
		{Kind: Propose, Ballot: 2, Outcome: outcome},
		{Kind: Ack, Ballot: 1}, {Kind: Decided}, {Kind: Closed},
	} {
		f.Add(Encode(m), Encode(Message{Kind: Ack, Ballot: 1}), uint8(1), uint8(2))
	}
	f.Fuzz(func(t *testing.T, first, second []byte, from, state uint8) {
		const size = 3
		for self := range size {
			m := New(self, size)
			if state&1 != 0 {
				m.Failed((self + 1) % size)
			}
			if state&2 != 0 {
				_ = m.Start(Call{Operation: Agree, Flags: 5}, nil)
			}
			for _, b := range [][]byte{first, second} {
				msg, err := Decode(b, size)
				if err != nil {
					continue
				}
				m.Receive(int(from)%size, msg)
				m.Tick()
			}
			m.Failed((self+1)%size, (self+2)%size)
			m.Take()
		}
	})
}
