package tune

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// Which path messages take, size by size: every path is measured at all sizes
// that it can carry, and the parameters say where one takes over from another.

// ordinary measures messages of ordinary memory between two ranks on every path:
// in one frame at once, in several after an offer, copied by process_vm_readv.
func (s *search) ordinary(ctx context.Context) error {
	const frames, eager, cma = 0, 1, 2
	offered := s.best.with(singleCopy, "off", eagerLimit, text(smallest))
	arms := []arm{
		frames: {offered, loads(smallest, s.most, false)},
		eager:  {offered.with(eagerLimit, text(s.frame())), loads(smallest, s.frame()/2, false)},
	}
	if s.noCMA == "" {
		arms = append(arms, arm{offered.with(singleCopy, "cma", cmaMin, "0"), loads(middle, s.most, false)})
	}
	c, err := s.contest(ctx, arms...)
	if err != nil {
		return err
	}
	if err := s.threshold(ctx, eagerLimit, c, eager, frames, smallest, min(s.size(eagerLimit), s.frame()), text); err != nil {
		return err
	}
	if s.noCMA == "" {
		s.forced = c.score(frames, cma, everywhere)
		if s.forced.passes() {
			if s.notForced, err = c.again(ctx, frames, cma, everywhere); err != nil {
				return err
			}
		}
	}
	s.shown(c, "two ranks, a processor each, ordinary memory", false, "frames", "eager", "cma")
	return nil
}

// allocated measures messages of AllocMem memory: as frames, and read by the
// receiver.
func (s *search) allocated(ctx context.Context) error {
	const frames, memory, cma = 0, 1, 2
	from := s.size(eagerLimit) // below, nothing is offered
	off := s.best.with(singleCopy, "off")
	list := loads(from, s.most, true)
	arms := []arm{
		frames: {off, list},
		memory: {off.with(singleCopy, "memory", memoryMin, "0"), list},
	}
	if s.forced.passes() && s.notForced == "" {
		arms = append(arms, arm{off.with(singleCopy, "cma", cmaMin, "0"), list})
	}
	c, err := s.contest(ctx, arms...)
	if err != nil {
		return err
	}
	if s.noCMA == "" {
		// It would be the way for all memory. Machines where two processors copy
		// badly together want it.
		if len(arms) > cma && c.score(cma, memory, everywhere).passes() {
			s.notForced = "slower for memory of AllocMem"
		}
		s.tried(singleCopy, "cma", s.forced, s.notForced)
	}
	if s.best[singleCopy] == "auto" {
		if err := s.threshold(ctx, memoryMin, c, frames, memory, from, max(s.size(memoryMin), from), text); err != nil {
			return err
		}
	}
	s.shown(c, "two ranks, a processor each, memory of AllocMem", true, "frames", "memory", "cma")
	return nil
}

// crowd measures messages of ordinary memory between ranks that share processors.
func (s *search) crowd(ctx context.Context) error {
	const frames, cma = 0, 1
	if s.noCMA != "" {
		s.note("process_vm_readv is not tried: %s", s.noCMA)
		return nil
	}
	from := max(s.size(eagerLimit), 16*kib)
	list := crowdLoads(from, min(s.most, mib))
	off := s.best.with(singleCopy, "off")
	c, err := s.contest(ctx, arm{off, list}, arm{off.with(singleCopy, "cma", cmaMin, "0"), list})
	if err != nil {
		return err
	}
	if s.best[singleCopy] == "auto" {
		if err := s.threshold(ctx, cmaMin, c, frames, cma, from, max(s.size(cmaMin), from), text); err != nil {
			return err
		}
	}
	s.shown(c, fmt.Sprintf("%d ranks on two processors, ordinary memory", crowdRanks), false, "frames", "cma")
	return nil
}

// path is which way a message of some size goes by the values in use.
func (s *search) path(size int, allocMem, crowd bool) string {
	single := s.best[singleCopy]
	switch {
	case size < s.size(eagerLimit):
		return "eager"
	case allocMem && single == "auto" && size >= s.size(memoryMin):
		return "memory"
	case (single == "cma" || crowd && single == "auto") && size >= s.size(cmaMin):
		return "cma"
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
