package worker

import (
	"context"
	"fmt"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/btltest"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// decodeParams decodes a component's parameters.
func (w *worker) decodeParams(i framework.Info, into any) error {
	if into == nil {
		return nil
	}
	return w.values.Decode(string(i.Kind)+"."+i.Name, into)
}

// paramsFunc returns a kit's parameter callback. decodeParams has succeeded before.
func (w *worker) paramsFunc(i framework.Info) func(rank int, params any) {
	return func(_ int, params any) { _ = w.decodeParams(i, params) }
}

// findTransport returns the component that transfers the stack's messages.
func (w *worker) findTransport() (framework.Component, error) {
	kind, name := report.Stack{ViaComponent: w.task.ViaComponent}.Transport()
	if c, ok := w.registry.Lookup(framework.Kind(kind), name); ok {
		return c, nil
	}
	return nil, fmt.Errorf("%w: this program has no %s", framework.ErrUnsupported, w.task.ViaComponent)
}

// selectKitCases returns the cases of a kit for the stack.
func (w *worker) selectKitCases(ctx context.Context, family, policy string) (kittest.Cases, error) {
	if family == "pmltest" {
		stack, err := w.selectStack(ctx)
		if err != nil {
			return nil, err
		}
		for _, p := range pmltest.Policies {
			if p.String() == policy {
				return pmltest.Cases(stack, p), nil
			}
		}
		return nil, fmt.Errorf("%w: no cid policy %q", framework.ErrConfig, policy)
	}
	c, err := w.findTransport()
	if err != nil {
		return nil, err
	}
	if err := w.decodeParams(c.Info(), c.Params()); err != nil {
		return nil, err
	}
	fill := w.paramsFunc(c.Info())
	switch c := c.(type) {
	case btl.Component:
		return btltest.Cases(btltest.Subject{Component: c, Params: fill}), nil
	case mtl.Component:
		return mtltest.Cases(mtltest.Subject{Component: c, Params: fill}), nil
	}
	return nil, fmt.Errorf("%w: %s has no kit", framework.ErrUnsupported, w.task.ViaComponent)
}

// selectStack returns the selected components, for pmltest.
func (w *worker) selectStack(ctx context.Context) (pmltest.Stack, error) {
	var s pmltest.Stack
	p, err := w.registry.Select(ctx, framework.PML, w.values)
	if err == nil {
		err = p.CheckChosen()
	}
	if err != nil {
		return s, err
	}
	var ok bool
	if s.PML, ok = p.Chosen[0].Component.(pml.Component); !ok {
		return s, fmt.Errorf("%w: %s is not a PML", framework.ErrUnsupported, p.Chosen[0].Verdict.Name)
	}
	parts := []framework.Component{s.PML}
	switch kind, _ := (report.Stack{ViaComponent: w.task.ViaComponent}).Transport(); framework.Kind(kind) {
	case framework.BTL:
		b, err := w.registry.Select(ctx, framework.BTL, w.values)
		if err != nil {
			return s, err
		}
		for _, c := range b.Chosen {
			s.BTLs = append(s.BTLs, c.Component.(btl.Component))
			parts = append(parts, c.Component)
		}
	case framework.MTL:
		c, err := w.findTransport()
		if err != nil {
			return s, err
		}
		s.MTL = c.(mtl.Component)
		parts = append(parts, c)
	}
	s.Set = map[string]string{}
	for _, c := range parts {
		i, params := c.Info(), c.Params()
		if params == nil {
			continue
		}
		for _, p := range framework.ParamsOf(framework.ComponentName(i.Kind, i.Name), params) {
			v, _ := w.values.Get(p.Name)
			s.Set[p.Name] = v.Text
		}
	}
	return s, nil
}

// runKit runs cases of a kit up to the first failure, whose leftovers could affect later cases. Those get a new
// worker.
func (w *worker) runKit(ctx context.Context, family, policy string) error {
	all, err := w.selectKitCases(ctx, family, policy)
	if err != nil {
		return err
	}
	for _, cell := range w.task.CellNames {
		c, ok := all.Named(w.task.CaseName(cell))
		if !ok {
			return fmt.Errorf("%w: there is no case %s", framework.ErrConfig, cell)
		}
		w.Begin(cell)
		e := EventOf(c.Run(ctx))
		w.End(e)
		if e.Status.Bad() {
			return nil
		}
	}
	return nil
}
