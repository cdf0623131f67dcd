package agreement

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/framework/scripttest"

	"github.com/ferrympi/ferry/cid"
)

// script is the state of a golden script. Its commands are:
//
//	members N           begin a communicator of N members
//	agree R FLAGS       rank R calls Agree; "agree R FLAGS value V" with the value of the allreduce
//	shrink R            rank R calls Shrink; "shrink R broken" with a broken path
//	complete R          rank R leaves the barrier of the common case
//	exclude R           the context of rank R ends
//	deliver #K ...      messages by number; they stay deliverable
//	failed R at Q ...   the failure of R is reported to Q
//	probe R Q           rank R probes rank Q
//	tick R, close R
type script struct {
	machines []*Machine
	messages []sent
}

func (s *script) command(line string) ([]string, error) {
	words := strings.Fields(line)
	arg := func(i int) int {
		if i >= len(words) {
			return 0
		}
		n, _ := strconv.Atoi(strings.TrimPrefix(words[i], "#"))
		return n
	}
	rank := arg(1)
	switch words[0] {
	case "members":
		*s = script{}
		for r := range rank {
			s.machines = append(s.machines, New(r, arg(1)))
		}
		return nil, nil
	case "deliver":
		var out []string
		for i := range words[1:] {
			e := s.messages[arg(1+i)]
			s.machines[e.to].Receive(e.from, e.message)
			out = append(out, s.show(e.to)...)
		}
		return out, nil
	case "failed":
		var out []string
		for i := range words[3:] {
			s.machines[arg(3+i)].Failed(rank)
			out = append(out, s.show(arg(3+i))...)
		}
		return out, nil
	}
	return s.own(words, s.machines[rank], arg)
}

// own runs a command of one member.
func (s *script) own(words []string, m *Machine, arg func(int) int) ([]string, error) {
	var err error
	switch words[0] {
	case "agree":
		var value *uint64
		if len(words) > 3 {
			v := uint64(arg(4))
			value = &v
		}
		err = m.Start(Call{Operation: Agree, Flags: uint64(arg(2))}, value)
	case "shrink":
		err = m.Start(Call{Operation: Shrink, ID: cid.Extended{Base: uint64(70 + m.selfRank)}, WireUp: len(words) > 2}, nil)
	case "complete":
		m.Complete()
	case "exclude":
		m.Exclude()
	case "tick":
		m.Tick()
	case "probe":
		m.Probe(arg(2))
	case "close":
		m.Close()
	default:
		return nil, fmt.Errorf("unknown command %q", words[0])
	}
	out := s.show(m.selfRank)
	if err != nil {
		out = append(out, err.Error())
	}
	return out, nil
}

// show numbers and describes the queued messages and the outcome of a member.
func (s *script) show(rank int) []string {
	var out []string
	m := s.machines[rank]
	for _, e := range m.Take() {
		k := e.Message
		text := fmt.Sprintf("#%d %d to %d: %v of instance %d", len(s.messages), rank, e.ToRank, k.Kind, k.Instance)
		if k.Ballot > 0 {
			text += fmt.Sprintf(", ballot %d", k.Ballot)
		}
		if c := k.Contribution; c != nil {
			text += fmt.Sprintf(", %v %x failed %d", c.Operation, c.Flags, c.FailedRanks)
			if c.IsExcluded {
				text += " excluded"
			}
		}
		switch {
		case k.Kind == Propose:
			text += ": " + showOutcome(*k.Outcome)
		case k.Outcome != nil:
			text += fmt.Sprintf(", holds of ballot %d: %s", k.HeldBallot, showOutcome(*k.Outcome))
		}
		s.messages = append(s.messages, sent{rank, e.ToRank, k})
		out = append(out, text)
	}
	if o, ok := m.Result(); ok {
		out = append(out, fmt.Sprintf("%d decides: %s", rank, showOutcome(o)))
	}
	return out
}

func showOutcome(o Outcome) string {
	s := fmt.Sprintf("%v %x failed %d", o.Operation, o.Flags, o.FailedRanks)
	if len(o.ExcludedRanks) > 0 {
		s += fmt.Sprintf(" excluded %d", o.ExcludedRanks)
	}
	if o.ID.Base != 0 {
		s += fmt.Sprintf(" id %d", o.ID.Base)
	}
	if o.WireUp {
		s += " wire up"
	}
	if len(o.MixedRanks) > 0 {
		s += fmt.Sprintf(" mixed %d", o.MixedRanks)
	}
	return s
}

func TestAgreement_Scripts(t *testing.T) {
	scripttest.Run(t, "testdata/*.txt", func() func(string) ([]string, error) { return new(script).command })
}
