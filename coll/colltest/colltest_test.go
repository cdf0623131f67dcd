package colltest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/basic"
	"github.com/ferrympi/ferry/coll/colltest"
	"github.com/ferrympi/ferry/framework"
)

// broken is coll/basic with a modified plan of one operation.
type broken struct {
	coll.Component
	op    coll.Operation
	spoil func(s *coll.Schedule, m coll.Member, a *coll.Args)
}

func (b broken) Query(params any, shape coll.Shape) *coll.Offer {
	o := &coll.Offer{}
	for _, a := range b.Component.Query(params, shape).Algorithms {
		if a.Op == b.op {
			plan := a.Plan
			a.Plan = func(s *coll.Schedule, m coll.Member, args *coll.Args) {
				plan(s, m, args)
				b.spoil(s, m, args)
			}
			o.Algorithms = append(o.Algorithms, a)
		}
	}
	return o
}

// first returns the first step of a kind.
func first(s *coll.Schedule, kind coll.Kind) *coll.Step {
	for i := range s.Steps {
		if s.Steps[i].Kind == kind {
			return &s.Steps[i]
		}
	}
	return &coll.Step{}
}

func TestKit_BrokenComponents_Fail(t *testing.T) {
	for name, b := range map[string]broken{
		"barrier without messages": {op: coll.Barrier, spoil: func(s *coll.Schedule, _ coll.Member, _ *coll.Args) { s.Reset() }},
		"barrier without the last step": {op: coll.Barrier, spoil: func(s *coll.Schedule, _ coll.Member, _ *coll.Args) {
			if n := len(s.Steps); n > 2 {
				s.Steps = s.Steps[:n-2]
			}
		}},
		"reduction with swapped operands": {op: coll.Allreduce, spoil: func(s *coll.Schedule, m coll.Member, _ *coll.Args) {
			if c := first(s, coll.Combine); m.Rank == 1 && c.N > 0 {
				c.Buf, c.From = c.From, c.Buf
				s.Wait()
				s.Copy(c.Buf, c.From, c.N)
			}
		}},
		"sum that is sent too early": {op: coll.Reduce, spoil: func(s *coll.Schedule, _ coll.Member, _ *coll.Args) {
			for i := range s.Steps {
				s.Steps[i].After = 0
			}
		}},
		"broadcast that sends nothing":   {op: coll.Bcast, spoil: func(s *coll.Schedule, _ coll.Member, _ *coll.Args) { s.Reset() }},
		"message without a receive":      {op: coll.Bcast, spoil: func(s *coll.Schedule, m coll.Member, _ *coll.Args) { s.Send(coll.Ref{}, 0, m.Plus(1)) }},
		"block at the offset of another": {op: coll.Gatherv, spoil: func(s *coll.Schedule, _ coll.Member, _ *coll.Args) { first(s, coll.Recv).Buf.At = 0 }},
		"input that is overwritten": {op: coll.Alltoall, spoil: func(s *coll.Schedule, _ coll.Member, a *coll.Args) {
			if s.Wait(); !a.IsInPlace {
				s.Copy(coll.Ref{Slot: coll.In}, coll.Ref{Slot: coll.Out}, a.Size)
			}
		}},
		"step beyond the memory": {op: coll.Scan, spoil: func(s *coll.Schedule, _ coll.Member, _ *coll.Args) { s.Temp = 0 }},
	} {
		if errs := colltest.Cases(b.with(basic.Component())).Check(t.Context()); len(errs) == 0 {
			t.Errorf("%s: passes", name)
		}
	}
}

func (b broken) with(c coll.Component) broken { b.Component = c; return b }

func TestKit_Instances_AreOpenedAndClosed(t *testing.T) {
	var h colltest.Heap
	colltest.Cases(h.Component()).Run(t)
	if opened, left := h.OpenInstances(); opened == 0 || left != 0 {
		t.Errorf("%d of %d instances are open", left, opened)
	}
}

// The kit thereby finds algorithms that rely on buffering.
func TestWorld_Synchronous_SendWaitsForTheReceiver(t *testing.T) {
	for _, synchronous := range []bool{false, true} {
		w := colltest.NewWorld(2, colltest.Options{Synchronous: synchronous})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		errs := w.Run(ctx, func(ctx context.Context, p *colltest.Peer) error {
			var s coll.Schedule
			s.Send(coll.Ref{}, 0, 1-p.Rank())
			s.Wait()
			s.Recv(coll.Ref{}, 0, 1-p.Rank())
			return s.Inline(ctx, p, &coll.Buffers{}, nil)
		})
		if stuck := errs[0] != nil && strings.Contains(errs[0].Error(), "deadline"); stuck != synchronous {
			t.Errorf("synchronous %v: %v", synchronous, errs)
		}
	}
}

// breaching changes the offers of a component.
type breaching struct {
	coll.Component
	offer func(*coll.Offer) *coll.Offer
}

func (b breaching) Query(params any, shape coll.Shape) *coll.Offer {
	return b.offer(b.Component.Query(params, shape))
}

func TestKit_InstanceMissingOrEmptyOffer_ReturnsErrConfig(t *testing.T) {
	for rule, offer := range map[string]func(*coll.Offer) *coll.Offer{
		"without algorithms": func(*coll.Offer) *coll.Offer { return &coll.Offer{} },
		"neither a module": func(o *coll.Offer) *coll.Offer {
			return &coll.Offer{Algorithms: o.Algorithms, Open: func(coll.Env) (coll.Instance, error) { return nil, nil }}
		},
	} {
		errs := colltest.Cases(breaching{basic.Component(), offer})[:1].Check(t.Context())
		if len(errs) == 0 || !errors.Is(errs[0], framework.ErrConfig) || !strings.Contains(errs[0].Error(), rule) {
			t.Errorf("%v, want ErrConfig with %q", errs, rule)
		}
	}
}
