package tune

import (
	"cmp"
	"context"
	"slices"
)

// Which path messages take, size by size: every path is measured at all sizes
// that it can carry, and the parameters say where one takes over from another.

// ordinary measures messages of ordinary memory between two ranks: sent at once, and
// offered first, after which they come by the way that ob1 learns.
func (s *search) ordinary(ctx context.Context) error {
	const offered, eager = 0, 1
	c, err := s.contest(ctx,
		arm{s.best.with(eagerLimit, text(smallest)), loads(smallest, s.most, false)},
		arm{s.best.with(eagerLimit, text(s.frame())), loads(smallest, s.frame()/2, false)})
	if err != nil {
		return err
	}
	if err := s.threshold(ctx, eagerLimit, c, eager, offered, smallest, min(s.size(eagerLimit), s.frame()), text); err != nil {
		return err
	}
	s.shown(c, "two ranks, a processor each, ordinary memory", false, "offered", "eager")
	return nil
}

// allocated measures messages of AllocMem memory: as frames, and read by the receiver.
// Above 16 KiB ob1 learns which is better; memory_min is from where there is a choice.
func (s *search) allocated(ctx context.Context) error {
	const frames, memory = 0, 1
	from := s.size(eagerLimit) // below, nothing is offered
	list := loads(from, s.most, true)
	c, err := s.contest(ctx, arm{s.best.with(singleCopy, "off"), list}, arm{s.best.with(singleCopy, "memory", memoryMin, "0"), list})
	if err != nil {
		return err
	}
	if err := s.threshold(ctx, memoryMin, c, frames, memory, from, max(s.size(memoryMin), from), text); err != nil {
		return err
	}
	s.shown(c, "two ranks, a processor each, memory of AllocMem", true, "frames", "memory")
	return nil
}

// path is which way a message of some size goes by the values in use.
func (s *search) path(size int, allocMem bool) string {
	switch {
	case !allocMem && size < s.size(eagerLimit):
		return "eager"
	case !allocMem:
		return "offered"
	case size >= s.size(memoryMin):
		return "memory"
	}
	return "frames"
}

// threshold finds from which size on path high should take over from path low;
// present is from where it does so far. Of the sizes that are clearly better than
// that, by the sizes whose path changes, it is the one with the largest sum. value says
// what the parameter is then.
func (s *search) threshold(ctx context.Context, name string, c *contest, low, high, from, present int, value func(int) string) error {
	type candidate struct {
		at, a, b int
		keep     func(point) bool
		x        score
		sum      float64
	}
	var all []candidate
	sizes := sizesOf(c, low, high, from)
	steps := sizes
	if n := len(sizes); n > 0 {
		steps = append(slices.Clip(sizes), 2*sizes[n-1]) // at none of the sizes
	}
	for _, at := range steps {
		first, last := min(at, present), max(at, present)
		k := candidate{at: at, a: low, b: high, keep: func(p point) bool { return p.size >= first && p.size < last }}
		if at > present { // fewer sizes go by high
			k.a, k.b = high, low
		}
		k.x = c.score(k.a, k.b, k.keep)
		for _, size := range sizes {
			if size >= first && size < last {
				k.sum += k.x.gain
			}
		}
		if k.x.known {
			all = append(all, k)
		}
	}
	if len(all) == 0 {
		s.tried(name, "", score{}, "")
		return nil
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(b.sum, a.sum) })
	best := all[0] // if none suffices
	if i := slices.IndexFunc(all, func(k candidate) bool { return k.x.passes() }); i >= 0 {
		best = all[i]
	}
	why := ""
	if best.x.passes() {
		var err error
		if why, err = c.again(ctx, best.a, best.b, best.keep); err != nil {
			return err
		}
	}
	s.tried(name, value(best.at), best.x, why)
	return nil
}

// sizesOf returns the sizes from one on at which two arms were measured.
func sizesOf(c *contest, i, j, from int) []int {
	var sizes []int
	for _, p := range c.points(i, j) {
		if p.size >= from {
			sizes = append(sizes, p.size)
		}
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}
