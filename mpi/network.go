package mpi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/pml"
)

// What a PML over an MTL needs of the engine: the MTL, and a PML for processes of
// its node.

// nodePML is the PML that others leave the processes of a node to.
const nodePML = "ob1"

// openMTL opens the MTL that selection prefers, for one PML: the next one if that
// fails.
func (e *engine) openMTL(ctx context.Context, r mtl.Receiver) (pml.OpenMTL, error) {
	selection := e.selections[framework.MTL]
	if selection == nil {
		return pml.OpenMTL{}, fmt.Errorf("%w: this program has no mtl component", ErrUnsupported)
	}
	for _, choice := range slices.Clone(selection.Chosen) {
		m, err := e.openOneMTL(ctx, choice, r)
		if err == nil {
			if _, err := selection.One(); err != nil {
				return pml.OpenMTL{}, errors.Join(err, m.Close())
			}
			e.mtls = append(e.mtls, m)
			e.progress.Add(m)
			return pml.OpenMTL{Name: choice.Verdict.Name, Module: m}, nil
		}
		e.log.Warn("mtl failed to open", "mtl", choice.Verdict.Name, "err", err)
		if bound := selection.Fail(choice.Verdict.Name, err); bound != nil {
			return pml.OpenMTL{}, bound
		}
	}
	return pml.OpenMTL{}, selection.Empty()
}

func (e *engine) openOneMTL(ctx context.Context, choice framework.Choice, r mtl.Receiver) (mtl.Module, error) {
	component, ok := choice.Component.(mtl.Component)
	if !ok {
		return nil, wrongContract(choice)
	}
	defer e.timing.opened(framework.MTL, choice.Verdict.Name, time.Now())
	return component.Open(ctx, mtl.Env{
		Params: choice.Params, Identity: e.identity, Worlds: e.worlds, Nonce: e.nonce,
		Engine: e.progress, Upcall: r, Logger: e.log,
	})
}

// closeMTLs closes the MTLs from the given one on.
func (e *engine) closeMTLs(from int) error {
	var errs []error
	for _, m := range e.mtls[from:] {
		e.progress.Remove(m) // does nothing if that was done
		errs = append(errs, m.Close())
	}
	e.mtls = e.mtls[:from]
	return errors.Join(errs...)
}

// openNode returns the PML for processes of this node: the module that is open
// already, or will be one of those that selection allows, or one of its own.
func (e *engine) openNode(ctx context.Context) (pml.Module, error) {
	if i := slices.IndexFunc(e.modules, func(m module) bool { return m.name == nodePML }); i >= 0 {
		e.node = e.modules[i].Module
	}
	if e.node != nil {
		return e.node, nil
	}
	component, ok := e.registry.Lookup(framework.PML, nodePML)
	if !ok {
		return nil, fmt.Errorf("%w: this program has no pml %s", ErrUnsupported, nodePML)
	}
	choice := framework.Choice{Component: component, Params: component.Params(), Verdict: framework.Verdict{Kind: framework.PML, Name: nodePML}}
	if choice.Params != nil {
		if err := e.values.Decode(string(framework.PML)+"."+nodePML, choice.Params); err != nil {
			return nil, err
		}
	}
	m, err := e.openPML(ctx, choice)
	if err == nil {
		e.node = m
	}
	return m, err
}

// closeNode closes the PML for processes of this node, unless it is a module of its
// own. Those that have asked for it are closed.
func (e *engine) closeNode() error {
	m := e.node
	e.node = nil
	if m == nil || slices.ContainsFunc(e.modules, func(x module) bool { return x.Module == m }) {
		return nil
	}
	return m.Close()
}

// upper returns the modules that no other one uses: what they say of themselves has
// what the node's PML does for them in it.
func (e *engine) upper() []module {
	return slices.DeleteFunc(slices.Clone(e.modules), func(m module) bool { return e.node != nil && m.Module == e.node })
}
