package colltest_test

import (
	"context"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/basic"
	"github.com/ferrympi/ferry/coll/colltest"
)

// broken is coll/basic with one operation replaced.
type broken struct {
	coll.Component
	spoil func(*coll.Ops)
}

func (b broken) Query(params any, p coll.Peers) *coll.Ops {
	o := b.Component.Query(params, p)
	b.spoil(o)
	return o
}

func TestKitFindsBrokenComponents(t *testing.T) {
	good := basic.Component().Query(nil, colltest.NewWorld(1, colltest.Options{}).Peer(0))
	for name, spoil := range map[string]func(*coll.Ops){
		"barrier that waits for nobody": func(o *coll.Ops) {
			o.Barrier = func(context.Context, coll.Peers) error { return nil }
		},
		"reduction that ignores the order of ranks": func(o *coll.Ops) {
			o.Reduce = func(ctx context.Context, p coll.Peers, send, recv []byte, r coll.Reducer, root int) error {
				r.Commutative = true
				return good.Reduce(ctx, p, send, recv, r, root)
			}
		},
		"scratch memory that is kept": func(o *coll.Ops) {
			o.Allreduce = func(ctx context.Context, p coll.Peers, send, recv []byte, r coll.Reducer) error {
				p.Scratch(8)
				return good.Allreduce(ctx, p, send, recv, r)
			}
		},
		"broadcast that sends nothing": func(o *coll.Ops) {
			o.Bcast = func(context.Context, coll.Peers, []byte, int) error { return nil }
		},
		"error that is swallowed": func(o *coll.Ops) {
			o.Allgather = func(ctx context.Context, p coll.Peers, send, recv []byte) error {
				_ = good.Allgather(ctx, p, send, recv)
				return nil
			}
		},
	} {
		if errs := colltest.Cases(broken{basic.Component(), spoil}).Check(t.Context()); len(errs) == 0 {
			t.Errorf("%s: passes", name)
		}
	}
}

func TestSynchronousWorldWaitsForTheReceiver(t *testing.T) {
	w := colltest.NewWorld(2, colltest.Options{Synchronous: true})
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(context.DeadlineExceeded)
	err := w.Peer(0).Send(ctx, nil, 1, 0)
	if err == nil || !strings.Contains(err.Error(), "deadline") {
		t.Errorf("Send with nobody to receive: %v", err)
	}
}
