package threads_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml/pmltest"
	"github.com/ferrympi/ferry/pml/threads"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stack is a process with goroutine ranks; change may change the parameters.
func stack(change func(*threads.Params)) pmltest.Stack {
	p := new(threads.Params)
	framework.FillDefaults(p)
	if change != nil {
		change(p)
	}
	return pmltest.Stack{Threads: p}
}

// tiny has most messages take the ways of those that find no room.
func tiny(p *threads.Params) { p.EagerLimit, p.UnexpectedLimit = 64, 16<<10 }

func TestContract(t *testing.T) {
	pmltest.Run(t, stack(nil), cid.PolicyAgree)
	t.Run("tiny", func(t *testing.T) { pmltest.Run(t, stack(tiny), cid.PolicyAgree) })
}

func TestMessage_SteadyState_AllocatesNothing(t *testing.T) {
	if underRace {
		t.Skip("pools drop objects at random under the race detector")
	}
	pmltest.NoAllocations(t, stack(nil))
}
