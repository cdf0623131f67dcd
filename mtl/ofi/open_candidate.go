package ofi

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/trial"
)

// errSelftestTimeout ends a self-test that makes no progress.
var errSelftestTimeout = errors.New("nothing came within mtl.ofi.selftest_timeout")

// swapUpcall replaces the receiver of the module's upcalls and returns the previous one.
func (m *module) swapUpcall(up mtl.Receiver) mtl.Receiver {
	before := m.env.Upcall
	m.env.Upcall = up
	return before
}

// openCandidate opens and tests a candidate with each layout that it supports, until one passes.
func openCandidate(ctx context.Context, env mtl.Env, p *params, lib *libfabric.Library, c *candidate) (*module, error) {
	layouts, why, err := candidateLayouts(c.info, p.Layout, lib.Version())
	if err != nil {
		return nil, err
	}
	descriptors := descriptorChoices(p.Wait, env.Identity.MaxOnMachine() > cpu.ForRanks())
	var failed error
	for _, l := range layouts {
		for _, fd := range descriptors {
			// The test observes the deadline itself. The additional half is for calls that do not return to it.
			m, err := trial.Within(ctx, p.Deadline+p.Deadline/2, "provider "+c.info.String(), func(given context.Context) (*module, error) {
				return openAndTest(given, env, p, lib, c, l, fd)
			}, func(m *module) { m.Close() })
			if err == nil {
				if why != "" && !l.hasSourceData {
					m.description.Notes = append(m.description.Notes, "a message has its sender in the tag: "+why)
				}
				return m, nil
			}
			failed = err
			if l.hasSourceData {
				why = err.Error()
			}
			var step *libfabric.Error
			if ctx.Err() != nil || errors.Is(err, trial.ErrHangs) || errors.Is(err, errSelftestTimeout) {
				return nil, err
			}
			if !errors.As(err, &step) {
				break // A failed test does not depend on the descriptor.
			}
		}
	}
	return nil, failed
}

// descriptorChoices returns whether to open with a descriptor, in order of preference. A completion queue with a
// descriptor costs a tenth of the message rate (188,900 instead of 212,500 messages of 8 bytes a
// second over tcp;ofi_rxm). Oversubscribed ranks sleep most of the time, and polling would delay each
// message by a millisecond.
func descriptorChoices(wait string, oversubscribed bool) []bool {
	switch {
	case wait == "fd":
		return []bool{true}
	case wait == "auto" && oversubscribed:
		return []bool{true, false}
	}
	return []bool{false}
}

// candidateLayouts returns the layouts of a provider in a version of libfabric, in order of preference, and the
// reason why auto excludes completion data.
func candidateLayouts(info *libfabric.Info, name string, v libfabric.Version) (all []layout, why string, err error) {
	width := tagWidth(info.TagFormat)
	lacks := ""
	if what, ok := quirkReason(info.Provider, PackSource, v); ok {
		lacks = what
	} else if !carriesSource(info) {
		lacks = "it lacks completion data or receives from one address (FI_DIRECTED_RECV)"
	}
	prefers, _ := quirkReason(info.Provider, PreferPacked, v)
	var withData []bool
	switch {
	case name == "data" && lacks != "":
		return nil, "", fmt.Errorf("mtl.ofi.layout=data is not possible: %s", lacks)
	case name == "data":
		withData = []bool{true}
	case name == "packed":
		withData = []bool{false}
	case name == "auto":
		why = cmp.Or(lacks, prefers)
		withData = []bool{true, false}
		if why != "" {
			withData = withData[1:]
		}
	default:
		l, err := parseLayout(name, width)
		return []layout{l}, "", err
	}
	for _, data := range withData {
		l, failed := newLayout(width, data)
		if failed != nil {
			err = failed
			continue
		}
		all = append(all, l)
	}
	if len(all) > 0 {
		err = nil
	}
	return all, why, err
}

// openAndTest opens an endpoint and tests it, until ctx ends.
func openAndTest(ctx context.Context, env mtl.Env, p *params, lib *libfabric.Library, c *candidate, l layout, fd bool) (*module, error) {
	_, prefersPacked := quirkReason(c.info.Provider, PreferPacked, lib.Version())
	ep, err := lib.Open(c.info, fd, l.hasSourceData || !prefersPacked, limitsFor(c.info, p.Buffers, lib.Version()).completions)
	if err != nil {
		return nil, err
	}
	m := newModule(env, lib, ep, c, l, p)
	if err = m.start(c, controlReceiveCount(c.info, p.Buffers)); err == nil {
		patience := trial.NewPatience(p.Deadline)
		err = trial.Test{
			Module: m, Self: framework.Peer{Incarnation: m.env.Self, Proc: m.env.Identity.Proc, Blob: m.blob},
			Upcall: m.swapUpcall, HasSourceData: l.hasSourceData, Long: p.Selftest == "long", MatchTimeout: p.Deadline / 10,
			AbortReason: func() error {
				if patience.Over() || ctx.Err() != nil {
					return errSelftestTimeout
				}
				return m.err
			},
		}.Run()
	}
	if err != nil {
		m.err = err // Close does not wait for operations of a failed module.
		m.Close()
		return nil, err
	}
	return m, nil
}
