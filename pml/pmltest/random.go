package pmltest

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/pml"
)

// Op is one message of a script.
type Op struct {
	From, To int
	Tag      int
	Size     int
	Mode     pml.Mode
	Plane    pml.Plane
	AnyTag   bool // it is received with pml.AnyTag
	Meet     bool // all wait for what they have begun, before they go on
}

// Script returns n random messages among ranks: the same for the same seed.
// Whatever the stack, Play must give every receive the message of its own Op.
func Script(seed uint64, ranks, n int) []Op {
	rng := rand.New(rand.NewPCG(seed, 0))
	ops := make([]Op, n)
	for i := range ops {
		ops[i] = Op{
			From: rng.IntN(ranks), To: rng.IntN(ranks),
			Tag:    rng.IntN(3),
			Size:   rng.IntN(1 << (1 + rng.IntN(17))),
			Plane:  pml.Plane(rng.IntN(pml.Planes)),
			AnyTag: rng.IntN(4) == 0,
			Meet:   rng.IntN(16) == 0,
		}
		if rng.IntN(5) == 0 {
			ops[i].Mode = pml.Synchronous
		}
	}
	return ops
}

// Play runs a script on a communicator: each rank starts its sends and receives
// in the order of the script. Receives of one sender and plane are posted in the
// order of their sends, so that each has one message only that may match it.
// The error names the Op.
func Play(ctx context.Context, comms []pml.Comm, ops []Op) error {
	return Each(comms, func(rank int, c pml.Comm) error {
		type begun struct {
			pending
			op  int
			buf []byte // of a receive
		}
		var all []begun
		settle := func() error {
			for _, b := range all {
				op := ops[b.op]
				st, err := b.wait(ctx)
				if err == nil && b.buf != nil {
					err = compare(st, b.buf[:op.Size], data(b.op, op.Size), op.From, op.Tag)
				}
				if err != nil {
					return fmt.Errorf("op %d %+v: %w", b.op, op, err)
				}
			}
			all = all[:0]
			return nil
		}
		for i, op := range ops {
			var start []begun
			if op.From == rank {
				r, err := started(c.Isend(buffer(data(i, op.Size)), op.To, op.Tag, op.Plane, op.Mode))
				if err != nil {
					return fmt.Errorf("op %d %+v: %w", i, op, err)
				}
				start = append(start, begun{r, i, nil})
			}
			if op.To == rank {
				tag := op.Tag
				if op.AnyTag {
					tag = pml.AnyTag
				}
				buf := make([]byte, op.Size+1)
				r, err := started(c.Irecv(buffer(buf), op.From, tag, op.Plane))
				if err != nil {
					return fmt.Errorf("op %d %+v: %w", i, op, err)
				}
				start = append(start, begun{r, i, buf})
			}
			all = append(all, start...)
			if op.Meet {
				if err := settle(); err != nil {
					return err
				}
			}
		}
		return settle()
	})
}

func randomCases() claims {
	return claims{kittest.Of("RandomTrafficArrivesAsSent", 3, randomTraffic)}
}

func randomTraffic(ctx context.Context, f *fixture) error {
	for range 5 {
		seed := rand.Uint64()
		comms, err := f.Comm(f.policy)
		if err != nil {
			return err
		}
		if err := Play(ctx, comms, Script(seed, len(comms), 300)); err != nil {
			return fmt.Errorf("Script(%#x, %d, 300): %w", seed, len(comms), err)
		}
	}
	return nil
}
