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

// errGivenUp ends a test whose time is over.
var errGivenUp = errors.New("nothing came within mtl.ucx.selftest_timeout")

// try opens a candidate and tests it. wait says that it can be awaited.
func try(ctx context.Context, env mtl.Env, p *params, lib *ucp.Library, c *candidate) (m *module, wait bool, err error) {
	for _, wait := range waitsFor(p.Wait, env.Identity.MostOnMachine() > cpu.ForRanks()) {
		// The test has the deadline; what does not even come back to it gets half as long again.
		own := *c // of the call, which may go on when it is given up
		m, err = trial.Within(ctx, p.Deadline+p.Deadline/2, component+" "+c.name, func(given context.Context) (*module, error) {
			return openTested(given, env, p, lib, &own, wait)
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

// waitsFor returns whether to open with a descriptor, in the order of trial.
func waitsFor(wait string, crowded bool) []bool {
	switch {
	case wait == "fd":
		return []bool{true}
	case wait == "auto" && crowded:
		return []bool{true, false}
	}
	return []bool{false}
}

// openTested opens a worker and tests it, until ctx ends.
func openTested(ctx context.Context, env mtl.Env, p *params, lib *ucp.Library, c *candidate, wait bool) (*module, error) {
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
	if err = m.begin(c); err == nil {
		left := trial.NewPatience(p.Deadline)
		err = trial.Test{
			Module: m, Self: framework.Peer{Life: env.Self, Proc: env.Identity.Proc, Blob: m.blob},
			Upcall: m.swap, Long: p.Selftest == "long", Soon: p.Deadline / 10,
			GivenUp: func() error {
				if left.Over() || ctx.Err() != nil {
					return errGivenUp
				}
				return m.broken
			},
		}.Run()
	}
	if err != nil {
		m.Close()
		return nil, err
	}
	w.Direct()
	return m, nil
}

// swap has the module call up to another one than before, which it returns.
func (m *module) swap(up mtl.Receiver) mtl.Receiver {
	before := m.env.Upcall
	m.env.Upcall = up
	return before
}
