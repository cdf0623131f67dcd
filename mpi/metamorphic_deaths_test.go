package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// A mortal program has phases. After each but the last one, some ranks die, and the others continue over a Shrink of the
// communicator.
type mortal struct {
	seed   uint64
	ranks  int
	phases []program
	// Of each phase, by their ranks in the first one.
	victims [][]int
	// Of the agreements, by those ranks.
	flags []uint64
}

// mortalSteps is the largest number of steps of a phase.
const mortalSteps = 15

func drawMortal(seed uint64) mortal {
	rng := rand.New(rand.NewPCG(seed, 44))
	m := mortal{seed: seed, ranks: 4 + rng.IntN(4)}
	order := rng.Perm(m.ranks)
	for range m.ranks {
		m.flags = append(m.flags, rng.Uint64()|rng.Uint64())
	}
	for left := m.ranks; left > 0; {
		p := draw(rng.Uint64() % 1_000_000)
		p.Ranks = left
		p.Steps = p.Steps[:min(len(p.Steps), mortalSteps)]
		m.phases = append(m.phases, p)
		dying := min(1+rng.IntN(2), left-1)
		m.victims = append(m.victims, order[:dying])
		order, left = order[dying:], left-dying
		if dying == 0 {
			break
		}
	}
	return m
}

// account has the digests of the steps of a rank, and after each phase the agreement and the members.
type account []string

// play runs the program as one of its ranks. It returns the outcome in a survivor.
func (m mortal) play(ctx context.Context, world *mpi.Comm) (out account, err error) {
	c, me := world, world.Rank()
	for i, p := range m.phases {
		d, err := p.play(ctx, c)
		if err != nil {
			return out, fmt.Errorf("phase %d: %w", i, err)
		}
		for _, s := range p.Steps {
			if digest, ok := d[s.ID]; ok {
				out = append(out, fmt.Sprintf("phase %d, %v: %x", i, s, digest))
			}
		}
		// No rank dies before all others have done the steps, or makes the agreement fail after that.
		if value, err := c.Agree(ctx, m.flags[me]); err != nil {
			return out, fmt.Errorf("agree at the end of phase %d: %#x, %w", i, value, err)
		}
		if slices.Contains(m.victims[i], me) {
			mpitest.Die(ctx)
		}
		if len(m.victims[i]) == 0 {
			break
		}
		value, err := c.Agree(ctx, m.flags[me])
		if failed := (*mpi.ProcFailedError)(nil); !errors.As(err, &failed) {
			return out, fmt.Errorf("agree after phase %d: %w", i, err)
		}
		// The victims do not call Agree, and may not have died when it begins.
		out = append(out, fmt.Sprintf("phase %d, agree: %#x, %v", i, value, err))
		if p.Seed%2 == 0 {
			if err := c.Revoke(); err != nil {
				return out, err
			}
		}
		next, err := c.Shrink(ctx)
		if err != nil {
			return out, fmt.Errorf("shrink after phase %d: %w", i, err)
		}
		var members []uint32
		for _, member := range next.Group().Members() {
			members = append(members, member.Rank)
		}
		out = append(out, fmt.Sprintf("phase %d, members: %v", i, members))
		if c != world {
			if err := c.Close(); err != nil {
				return out, err
			}
		}
		c = next
	}
	if c != world {
		err = c.Close()
	}
	return out, err
}

// mortal runs a mortal program over a variant, and returns the outcomes of the survivors by rank.
func (v variant) mortal(t *testing.T, m mortal) ([]account, error) {
	job, done, err := v.job(m.ranks)
	if err != nil {
		return nil, err
	}
	defer done()
	job.Timeout = time.Minute
	options := job.Options
	job.Options = func(rank int) []mpi.SessionOption {
		return append(options(rank), mpi.WithLogger(slog.New(slog.DiscardHandler))) // Ranks log their deaths.
	}
	out := make([]account, m.ranks)
	a := &attempt{TB: t}
	ended, ok := make(chan struct{}), false
	go func() { // it ends where a test would
		defer close(ended)
		job.Run(a, func(ctx context.Context, c *mpi.Comm) (err error) {
			rank := c.Rank()
			out[rank], err = m.play(ctx, c)
			return err
		})
		ok = true
	}()
	<-ended
	if !ok {
		return nil, errors.New(strings.Join(a.said, "\n"))
	}
	return out, nil
}

// The survivors agree on the same values, and continue with the same members and results, over whatever stack.
func TestMetamorphic_RanksDieBetweenPhases_SurvivorsHaveOneOutcome(t *testing.T) {
	n := max(*seeds, 1)
	for seed := *firstSeed; seed < *firstSeed+n; seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			m, all := drawMortal(seed), variants(t)
			var want []account
			for i, v := range all {
				got, err := v.mortal(t, m)
				if err != nil {
					t.Errorf("%s: %v", v.name, err)
					continue
				}
				if i == 0 {
					want = got
				}
				for rank := range want {
					for at := range max(len(want[rank]), len(got[rank])) {
						if at >= len(want[rank]) || at >= len(got[rank]) || want[rank][at] != got[rank][at] {
							t.Fatalf("%s: rank %d differs from %s: %q, want %q", v.name, rank, all[0].name, got[rank][min(at, len(got[rank])):], want[rank][min(at, len(want[rank])):])
						}
					}
				}
			}
		})
	}
}
