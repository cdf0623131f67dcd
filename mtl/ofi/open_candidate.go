package ofi

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/base"
	"github.com/ferrympi/ferry/mtl/trial"
)

// openCandidate opens and tests a candidate with each layout that it supports, until one passes.
func openCandidate(ctx context.Context, env mtl.Env, p *params, lib *libfabric.Library, c *candidate) (*module, error) {
	layouts, why, err := candidateLayouts(c.providerInfo, p.TagLayout, lib.Version())
	if err != nil {
		return nil, err
	}
	descriptors := base.DescriptorChoices(p.WaitMode, &env)
	var failed error
	for _, l := range layouts {
		for _, fd := range descriptors {
			// Selftest observes the deadline itself. The additional half is for calls that do not return to it.
			m, err := trial.Within(ctx, p.SelftestTimeout+p.SelftestTimeout/2, "provider "+c.providerInfo.String(), func(given context.Context) (*module, error) {
				return openAndTest(given, env, p, lib, c, l, fd)
			}, func(m *module) { m.Close() })
			if err == nil {
				if why != "" && !l.hasSourceData {
					m.Description.Notes = append(m.Description.Notes, "a message has its sender in the tag: "+why)
				}
				return m, nil
			}
			failed = err
			if l.hasSourceData {
				why = err.Error()
			}
			var step *libfabric.Error
			if ctx.Err() != nil || errors.Is(err, trial.ErrHangs) || errors.Is(err, base.ErrSelftestTimeout) {
				return nil, err
			}
			if !errors.As(err, &step) {
				break // A failed test does not depend on the descriptor.
			}
		}
	}
	return nil, failed
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
	_, prefersPacked := quirkReason(c.providerInfo.Provider, PreferPacked, lib.Version())
	ep, err := lib.Open(c.providerInfo, fd, l.hasSourceData || !prefersPacked, limitsFor(c.providerInfo, p.ControlBuffers, lib.Version()).maxCompletions)
	if err != nil {
		return nil, err
	}
	m := newModule(env, lib, ep, c, l, p)
	if err = m.start(c, controlReceiveCount(c.providerInfo, p.ControlBuffers)); err == nil {
		err = m.Selftest(ctx, trial.Test{Module: m, HasSourceData: l.hasSourceData, IsLong: p.SelftestExtent == "long"}, p.SelftestTimeout)
	}
	if err != nil {
		m.Err = err // Close does not wait for operations of a failed module.
		m.Close()
		return nil, err
	}
	return m, nil
}
