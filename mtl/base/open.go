package base

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/internal/stderr"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/trial"
)

// DescriptorChoices returns whether to open with a descriptor, in order of preference, for a parameter wait of fd, poll or auto. With auto
// the module of an oversubscribed rank waits on a descriptor, because the rank sleeps most of the time, and polling would delay each message
// by PollInterval. Others poll, because a completion queue with a descriptor costs a tenth of the message rate (188,900 instead of
// 212,500 messages of 8 bytes a second over tcp;ofi_rxm).
func DescriptorChoices(wait string, env *mtl.Env) []bool {
	switch {
	case wait == "fd":
		return []bool{true}
	case wait == "auto" && env.Identity.MaxOnMachine() > cpu.ForRanks():
		return []bool{true, false}
	}
	return []bool{false}
}

// PollInterval is the time between polls of a sleeping process without a descriptor. At 0.1 ms, polling takes 15 % of a processor with
// tcp;ofi_rxm.
const PollInterval = time.Millisecond

// ErrSelftestTimeout is wrapped by the error of a self-test that makes no progress.
var ErrSelftestTimeout = errors.New("nothing came")

// Selftest runs a test of the open module, until a deadline, the end of ctx or a failure of the module. The caller sets Module, Long and HasSourceData
// of the test.
func (m *Module) Selftest(ctx context.Context, t trial.Test, deadline time.Duration) error {
	patience := trial.NewPatience(deadline)
	t.Self = framework.Peer{Incarnation: m.Env.Self, Proc: m.Env.Identity.Proc, Blob: m.Card.Blob}
	t.MatchTimeout = deadline / 10
	t.Upcall = func(up mtl.Receiver) (before mtl.Receiver) {
		before, m.Env.Upcall = m.Env.Upcall, up
		return before
	}
	t.AbortReason = func() error {
		if patience.Over() || ctx.Err() != nil {
			return fmt.Errorf("%w within %s.selftest_timeout", ErrSelftestTimeout, paramPrefix(m.Component))
		}
		return m.Err
	}
	return t.Run()
}

// paramPrefix returns "mtl.ofi" for "mtl ofi".
func paramPrefix(component string) string { return strings.ReplaceAll(component, " ", ".") }

// warned contains the warnings of this process by component and chosen candidate, so that further sessions don't repeat them.
var warned sync.Map

// Warn writes a warning about the chosen candidate to standard error, once in a process.
func Warn(component, chosen, text string) {
	if _, isRepeated := warned.LoadOrStore([2]string{component, chosen}, true); !isRepeated {
		fmt.Fprintf(stderr.Writer{}, "ferry: %s: %s (%s.warn=off turns this message off)\n", component, text, paramPrefix(component))
	}
}
