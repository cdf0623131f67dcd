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
	"github.com/ferrympi/ferry/internal/trustedfile"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/trial"
)

// Library is the file of a C library, as in the parameters of a component.
type Library struct {
	File     string
	Deadline time.Duration
}

// Available reports whether a library can be used. It calls load only if it does not find the file, because loading takes longer than
// the rest of a process's start. built is the reason why the program has no support for the library, or nil.
func (l Library) Available(ctx context.Context, built error, load func() error, remedy string) framework.Verdict {
	if built != nil {
		return framework.Verdict{
			Status: framework.StatusNotBuilt, Reason: built.Error(),
			Hint: "install a C compiler, in Debian gcc and libc6-dev, and build again",
		}
	}
	isOnDisk, err := trial.OnDisk(ctx, l.Deadline, l.File)
	if err == nil && !isOnDisk {
		err = load()
	}
	if err != nil {
		return framework.Unavailable(err.Error(), trustedfile.Remedy(err, remedy))
	}
	return framework.Usable()
}

// LoadLibrary calls load for a library. It refuses a file that another user can change. A late result is dropped.
func LoadLibrary[L any](ctx context.Context, l Library, load func(file string) (L, error)) (L, error) {
	lib, err := trial.Within(ctx, l.Deadline, trial.LoadCall(l.File), func(context.Context) (lib L, err error) {
		if err := trustedfile.CheckLibrary(l.File); err != nil {
			return lib, err
		}
		return load(l.File)
	}, func(L) {})
	if errors.Is(err, trial.ErrHangs) {
		err = fmt.Errorf("%s was not loaded within %v: %w", l.File, l.Deadline, err)
	}
	return lib, err
}

// ErrTooOld returns the error of a library whose version is not supported.
func (l Library) ErrTooOld(version, oldest fmt.Stringer) error {
	return fmt.Errorf("%w: %s is version %v, too old: ferry needs %v", framework.ErrUnsupported, l.File, version, oldest)
}

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

// OpenWithin calls open, which calls Selftest with the same deadline. That observes the deadline itself. The additional half is for calls
// that do not return to it. name is that of the candidate. A late module is closed.
func OpenWithin[M interface{ Close() error }](ctx context.Context, deadline time.Duration, name string, open func(context.Context) (M, error)) (M, error) {
	return trial.Within(ctx, deadline+deadline/2, name, open, func(m M) { m.Close() })
}

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
