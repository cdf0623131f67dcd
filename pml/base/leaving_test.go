package base

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/scripttest"
	"pgregory.net/rapid"
)

// Names of the values in scripts.
var exitActionNames = [...]string{"FailSends", "AbortSends", "SearchMessages", "EndReceives"}

// String returns the set as in scripts, such as "AbortSends|SearchMessages", and "nothing" for the empty set.
func (f ExitAction) String() string {
	var names []string
	for i, name := range exitActionNames {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, "|")
}

// command runs one line of a golden script.
func command(x *Exit, line string) ([]string, error) {
	f := strings.Fields(line)
	n := 1
	if len(f) > 1 {
		var err error
		if n, err = strconv.Atoi(f[1]); err != nil && f[1] != "unknown" {
			return nil, err
		}
	}
	switch f[0] {
	case "goodbye":
		total := uint64(n)
		if f[1] == "unknown" {
			total = Unknown
		}
		return []string{x.Goodbye(total, 3).String()}, nil
	case "received":
		x.Received += uint64(n)
	case "aside":
		x.Claimed += uint64(n)
	case "turn": // n turns, which have the same result.
		var last ExitAction
		for i := range n {
			act := x.NextStep()
			if i > 0 && act != last {
				return nil, fmt.Errorf("%q: turn %d: %v after %v", line, i+1, act, last)
			}
			last = act
		}
		return []string{last.String()}, nil
	case "sought":
		x.FinishSearch()
		return []string{"next in " + x.StepInterval().String()}, nil
	case "left", "unreachable", "failed":
		state := map[string]framework.PeerState{"left": framework.Left, "unreachable": framework.Unreachable, "failed": framework.Failed}[f[0]]
		if !x.SetEnded(state) {
			return []string{"no news"}, nil
		}
		if x.MarkAborted() {
			return []string{"AbortSends"}, nil
		}
	case "presence":
		return []string{strings.ToLower(x.PeerState().String())}, nil
	case "process":
		*x = Exit{}
	default:
		return nil, fmt.Errorf("unknown command %q", line)
	}
	return nil, nil
}

// TestExit_Scripts replays testdata/leaving.
func TestExit_Scripts(t *testing.T) {
	scripttest.Run(t, "testdata/leaving/*.txt", func() func(string) ([]string, error) {
		var x Exit
		return func(line string) ([]string, error) { return command(&x, line) }
	})
}

// TestExit_AnyEvents_EndsAfterAllMessages checks random sequences of events. It also checks that no
// receive waits for ever.
func TestExit_AnyEvents_EndsAfterAllMessages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x Exit
		total := uint64(rapid.IntRange(0, 5).Draw(t, "sent"))
		patience := rapid.IntRange(0, 5).Draw(t, "patience")
		var got, vain, turns int
		var forgets, ends int
		atLast := false
		for step := 0; x.PeerState() <= framework.Leaving && turns < 1000; step++ {
			switch pick := rapid.IntRange(0, 9).Draw(t, "event"); {
			case pick == 0 || step == 20:
				n := total
				if rapid.Bool().Draw(t, "unknown") {
					n = Unknown
				}
				first := x.PeerState() == framework.Alive
				if (x.Goodbye(n, patience) == FailSends) != first {
					t.Fatal("shut is for the first goodbye")
				}
			case pick == 1 && uint64(got) < total:
				got++
				x.Received++
			case pick == 2 && uint64(got) < total:
				got++
				x.Claimed++
			default:
				before := x.PeerState()
				act := x.NextStep()
				if act != 0 && before != framework.Leaving {
					t.Fatalf("%v for a process that is %v", act, before)
				}
				if act&AbortSends != 0 {
					forgets++
				}
				if act&(SearchMessages|EndReceives) != 0 && forgets != 1 {
					t.Fatalf("%v, and %d forgotten", act, forgets)
				}
				if act&SearchMessages != 0 {
					seen := x.lastAccounted
					x.FinishSearch()
					switch {
					case x.lastAccounted > seen:
						vain, atLast = 0, false
					case atLast:
						vain++
					}
					atLast = x.StepInterval() == LastGap
				}
				if act&EndReceives != 0 {
					ends++
					if uint64(got) < total && vain < patience {
						t.Fatalf("ended with %d of %d messages after %d looks in vain", got, total, vain)
					}
					if !x.SetEnded(framework.Left) || x.SetEnded(framework.Left) || x.SetEnded(framework.Failed) {
						t.Fatal("a process departs once")
					}
				}
				if before == framework.Leaving {
					turns++
				}
			}
		}
		if turns >= 1000 || ends != 1 || !x.HasEnded() || x.HasFailed() {
			t.Fatalf("after %d turns: %+v", turns, x)
		}
	})
}

func TestExit_AnyEvent_AllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() {
		var x Exit
		x.Goodbye(1, 1)
		for x.NextStep() == 0 {
		}
		x.FinishSearch()
		x.SetEnded(framework.Failed)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
