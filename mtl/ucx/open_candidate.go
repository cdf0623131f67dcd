package ucx

import (
	"context"
	"errors"

	"github.com/ferrympi/ferry/internal/ucp"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/base"
	"github.com/ferrympi/ferry/mtl/trial"
)

// openCandidate opens and tests a candidate. hasDescriptor is set if the module can wait on a descriptor.
func openCandidate(ctx context.Context, env mtl.Env, p *params, lib *ucp.Library, c *candidate) (m *module, hasDescriptor bool, err error) {
	for _, wait := range base.DescriptorChoices(p.WaitMode, &env) {
		// Selftest observes the deadline itself. The additional half is for calls that do not return to it.
		own := *c // A call that hangs keeps its own copy.
		m, err = trial.Within(ctx, p.SelftestTimeout+p.SelftestTimeout/2, component+" "+c.name, func(given context.Context) (*module, error) {
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

// openAndTest opens a worker and tests it, until ctx ends.
func openAndTest(ctx context.Context, env mtl.Env, p *params, lib *ucp.Library, c *candidate, wait bool) (*module, error) {
	w, err := lib.Open(c.ucxSettings, wait)
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
		err = m.Selftest(ctx, trial.Test{Module: m, IsLong: p.SelftestExtent == "long"}, p.SelftestTimeout)
	}
	if err != nil {
		m.Close()
		return nil, err
	}
	w.BypassCgo()
	return m, nil
}
