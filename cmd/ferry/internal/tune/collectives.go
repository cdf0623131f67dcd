package tune

import (
	"context"
	"fmt"
)

// Collectives on a node go through an area that the members share, or as messages: up to
// which size the one is better is measured as paths are. Larger ones, and what goes between
// nodes, have thresholds that all ranks of a job need alike, whatever their machines: they
// are not looked for here.

// leastShared is the smallest size at which the two are compared.
const leastShared = 256

// collectiveLoads are operations that differ most: one gives, and all do.
func collectiveLoads(ranks, to int) []load {
	iterations, warmup := 500, 50
	if ranks > processors {
		iterations, warmup = 50, 10
	}
	return []load{
		{bench: "bcast", ranks: ranks, min: leastShared, max: to, iterations: iterations, warmup: warmup},
		{bench: "allreduce", ranks: ranks, min: leastShared, max: to, iterations: iterations, warmup: warmup},
	}
}

// mostShared is the largest size that is looked at among more than two.
func (s *search) mostShared() int { return min(s.most, 256*kib) }

func (s *search) pair(ctx context.Context) error {
	return s.shared(ctx, sharedOfTwo, processors, 64*kib, "two ranks, a processor each, collectives")
}

func (s *search) many(ctx context.Context) error {
	return s.shared(ctx, sharedMost, crowdRanks, s.mostShared(), fmt.Sprintf("%d ranks on two processors, collectives", crowdRanks))
}

// shared finds up to which size collectives of so many ranks go through shared memory.
func (s *search) shared(ctx context.Context, name string, ranks, to int, title string) error {
	const area, messages = 0, 1
	list := collectiveLoads(ranks, to)
	c, err := s.contest(ctx, arm{s.best.with(name, text(to)), list}, arm{s.best.with(name, "0"), list})
	if err != nil {
		return err
	}
	last := func(at int) string { return text(at / 2) } // before the first that goes as messages
	if err := s.threshold(ctx, name, c, area, messages, leastShared, 2*s.size(name), last); err != nil {
		return err
	}
	s.tables = append(s.tables, table{title: title, c: c, paths: []string{"area", "messages"}, search: s, shared: name})
	return nil
}
