package ucx

import (
	"context"
	"errors"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/internal/ucp"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/trial"
)

// errSelftestTimeout ends a self-test that makes no progress.
var errSelftestTimeout = errors.New("nothing came within mtl.ucx.selftest_timeout")

// openCandidate opens and tests a candidate. hasDescriptor is set if the module can wait on a descriptor.
func openCandidate(ctx context.Context, env mtl.Env, p *params, lib *ucp.Library, c *candidate) (m *module, hasDescriptor bool, err error) {
	for _, wait := range descriptorChoices(p.Wait, env.Identity.MaxOnMachine() > cpu.ForRanks()) {
		// The test observes the deadline itself. The additional half is for calls that do not return to it.
		own := *c // A call that hangs keeps its own copy.
		m, err = trial.Within(ctx, p.Deadline+p.Deadline/2, component+" "+c.name, func(given context.Context) (*module, error) {
			return openAndTest(given, env, p, lib, &own, wait)
		}, func(m *module) { m.Close() })
		if err == nil {
			*c = own
		}
		var step *ucp.Error
		if err == nil || !errors.As(err, &step) {
			return m, wait, err
		}
	}
	return nil, false, err
}

// descriptorChoices returns whether to open with a descriptor, in order of preference.
func descriptorChoices(wait string, oversubscribed bool) []bool {
	switch {
	case wait == "fd":
		return []bool{true}
	case wait == "auto" && oversubscribed:
		return []bool{true, false}
	}
	return []bool{false}
}

// openAndTest opens a worker and tests it, until ctx ends.
func openAndTest(ctx context.Context, env mtl.Env, p *params, lib *ucp.Library, c *candidate, wait bool) (*module, error) {
	w, err := lib.Open(c.settings, wait)
	if err != nil {
		return nil, err
	}
	if c.resources, err = w.Resources(); err == nil {
		err = w.Start()
	}
	if err != nil {
		w.Close()
		return nil, err
	}
	m := newModule(env, lib, w, c, p)
	if err = m.start(c); err == nil {
		left := trial.NewPatience(p.Deadline)
		err = trial.Test{
			Module: m, Self: framework.Peer{Incarnation: env.Self, Proc: env.Identity.Proc, Blob: m.blob},
			Upcall: m.swapUpcall, Long: p.Selftest == "long", MatchTimeout: p.Deadline / 10,
			AbortReason: func() error {
				if left.Over() || ctx.Err() != nil {
					return errSelftestTimeout
				}
				return m.err
			},
		}.Run()
	}
	if err != nil {
		m.Close()
		return nil, err
	}
	w.BypassCgo()
	return m, nil
}

// swapUpcall replaces the receiver of the module's upcalls and returns the previous one.
func (m *module) swapUpcall(up mtl.Receiver) mtl.Receiver {
	before := m.env.Upcall
	m.env.Upcall = up
	return before
}
