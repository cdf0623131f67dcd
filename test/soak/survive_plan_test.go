package soak

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// surviveRanks is the number of ranks of a job in which ranks die.
const surviveRanks = 8

// stepKind is an operation of all ranks of a job.
type stepKind int

const (
	stepMessages stepKind = iota
	stepCollectives
	stepCreation
	stepRevoke
	stepShrink
	stepAgree
	stepKinds
)

func (k stepKind) String() string {
	return [...]string{"messages", "collectives", "creation", "revoke", "shrink", "agree"}[k]
}

// A death is the end of a rank by SIGKILL, a time after the beginning of a step or of a recovery. A
// rank that reaches the end of its job before dies there.
type death struct {
	rank, step int
	// Whether the time starts at the first recovery from that step on.
	inRecovery bool
	after      time.Duration
}

func (d death) String() string {
	where := fmt.Sprintf("step %d", d.step)
	if d.inRecovery {
		where = fmt.Sprintf("the first recovery from step %d on", d.step)
	}
	return fmt.Sprintf("rank %d dies %v after the beginning of %s", d.rank, d.after, where)
}

// survival is a job with deaths. It is derived from its seed.
type survival struct {
	seed   uint64
	steps  []stepKind
	deaths []death
}

func (p *survival) String() string {
	var lines []string
	for _, d := range p.deaths {
		lines = append(lines, fmt.Sprintf("%v (%v)", d, p.steps[d.step]))
	}
	return strings.Join(lines, ", ")
}

// newSurvival returns a job with that many deaths, or with one or two if deaths is 0.
func newSurvival(seed uint64, deaths int) *survival {
	rng := rand.New(rand.NewPCG(seed, 0))
	p := &survival{seed: seed}
	steps := 10
	switch deaths {
	case 0:
		deaths = 1 + rng.IntN(2)
	default:
		steps = 2 * deaths
	}
	for range steps {
		p.steps = append(p.steps, stepKind(rng.IntN(int(stepKinds))))
	}
	for i, rank := range rng.Perm(surviveRanks)[:deaths] {
		d := death{rank: rank, step: i * 2, after: randomLifetime(rng)}
		switch {
		case steps > 2*deaths && i == 0:
			d.step = rng.IntN(steps)
		case steps > 2*deaths: // The second one dies with the first, in the recovery from it, or anywhere.
			d.step = [...]int{p.deaths[0].step, p.deaths[0].step, rng.IntN(steps)}[rng.IntN(3)]
			d.inRecovery = rng.IntN(2) == 0
		case i > 0:
			d.inRecovery = rng.IntN(3) == 0
		}
		p.deaths = append(p.deaths, d)
	}
	return p
}

// randomLifetime returns a time until the death. Most operations take less than a millisecond.
func randomLifetime(rng *rand.Rand) time.Duration {
	most := [...]time.Duration{20 * time.Microsecond, 200 * time.Microsecond, 2 * time.Millisecond, 10 * time.Millisecond}[rng.IntN(4)]
	return time.Duration(rng.Int64N(int64(most)))
}

// deathOf returns the death of a rank, if it has one.
func (p *survival) deathOf(rank int) (death, bool) {
	i := slices.IndexFunc(p.deaths, func(d death) bool { return d.rank == rank })
	if i < 0 {
		return death{}, false
	}
	return p.deaths[i], true
}

// survivors returns the ranks without a death.
func (p *survival) survivors() (ranks []int) {
	for rank := range surviveRanks {
		if _, dies := p.deathOf(rank); !dies {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}
