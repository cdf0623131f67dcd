package tune

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ferrympi/ferry/framework"
)

// The parameters that are tuned.
const (
	ringSize     = "btl.shm.ring_size"
	eagerLimit   = "btl.shm.eager_limit"
	memoryMin    = "btl.shm.memory_min"
	fragmentSize = "pml.ob1.fragment_size"
	sharedOfTwo  = "coll.shm.most_of_two"
	sharedMost   = "coll.shm.most"
)

var names = []string{ringSize, fragmentSize, eagerLimit, memoryMin, sharedOfTwo, sharedMost}

// singleCopy forces a way, to measure it. It is not tuned: programs learn which is best.
const singleCopy = "btl.shm.single_copy"

const (
	kib = 1 << 10
	mib = 1 << 20

	// processors is on how many the measurements run, whatever the machine has.
	processors = 2

	// crowdRanks is how many ranks share them where ranks outnumber processors.
	crowdRanks = 8

	// reserve is the time for a last look at all that was found together.
	reserve = 25 * time.Second

	// smallest is the smallest message whose path is chosen: below, every path but
	// the eager one loses everywhere.
	smallest = kib

	// middle divides sizes that take many iterations from those that take few.
	middle = 32 * kib
)

// loads are those of two ranks with messages of these sizes, both included.
func loads(from, to int, allocMem bool) []load {
	var out []load
	two := func(from, to, iterations, warmup, windows, warmupWindows int) {
		if from <= to {
			out = append(out, load{"latency", processors, from, to, iterations, warmup, allocMem},
				load{"bw", processors, from, to, windows, warmupWindows, allocMem})
		}
	}
	two(from, min(to, middle/2), 2000, 100, 100, 10)
	two(max(from, middle), to, 100, 10, 5, 1)
	return out
}

// crowdLoads are those of ranks that share the processors.
func crowdLoads(from, to int) []load {
	return []load{
		{bench: "multi_lat", ranks: crowdRanks, min: from, max: to, iterations: 40, warmup: 5},
		{bench: "mbw_mr", ranks: crowdRanks, min: from, max: to, iterations: 10, warmup: 2},
	}
}

func everywhere(point) bool { return true }

// search finds the best setting, one parameter after the other.
type search struct {
	*meter
	defaults, best setting
	most           int // the largest message

	tables []table
	trials []trial
	sums   []sum

	step func(done, total int, what string) // for who waits
}

// trial is one value that was compared with the one that was best so far.
type trial struct {
	Param  string  `json:"param"`
	Value  string  `json:"value"` // empty: none could be compared
	Beside string  `json:"beside"`
	Gain   float64 `json:"gain"`   // by what part the value was better; negative: worse
	Needed float64 `json:"needed"` // for it to be taken
	Taken  bool    `json:"taken"`
	Why    string  `json:"why,omitempty"` // not, although the gain sufficed
}

// part turns a logarithm into a part: 0.1 is a tenth.
func part(log float64) float64 { return math.Exp(log) - 1 }

// run searches. What the time doesn't suffice for stays as it is.
func (s *search) run(ctx context.Context) error {
	steps := []struct {
		what string
		do   func(context.Context) error
	}{
		{"the size of rings", s.ring}, {"the size of frames", s.fragments}, {"messages in ordinary memory", s.ordinary},
		{"messages in memory of AllocMem", s.allocated},
		{"collectives of two ranks", s.pair}, {"collectives of more", s.many}, {"all together, beside the defaults", s.together},
	}
	for i, step := range steps {
		s.step(i, len(steps), step.what)
		if err := step.do(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *search) ring(ctx context.Context) error {
	// The default follows the number of ranks. A size that is given holds for any
	// number of them, and each pair that talks has two rings: large ones are not
	// for all.
	return s.candidates(ctx, ringSize, loads(smallest, min(s.most, mib), false), 256*kib, 128*kib)
}

func (s *search) fragments(ctx context.Context) error {
	d := s.size(fragmentSize)
	sizes := slices.DeleteFunc([]int{2 * d, d / 2, d / 4}, func(n int) bool { return n > s.frame() }) // longer frames don't fit
	return s.candidates(ctx, fragmentSize, loads(middle, min(s.most, mib), false), sizes...)
}

// frame is the longest frame that is thought of, with its headers: a quarter of the
// ring, and no more than a receiver should keep that doesn't expect it.
func (s *search) frame() int {
	if n := s.size(ringSize); n > 0 {
		return min(n/4, largestFrame)
	}
	return largestFrame
}

// largestFrame fits in the ring that two ranks have by default.
const largestFrame = 128 * kib

// size is the present best value of a parameter that is a size.
func (s *search) size(name string) int {
	n, err := framework.ParseSize(s.best[name])
	if err != nil { // defaults and texts of our own: both parse
		return 0
	}
	return int(min(n, math.MaxInt))
}

func text(n int) string { return framework.Size(n).String() }

// candidates tries values of a parameter, each beside the best so far.
func (s *search) candidates(ctx context.Context, name string, list []load, sizes ...int) error {
	for _, n := range sizes {
		value := text(n)
		if value == s.best[name] {
			continue
		}
		c, err := s.contest(ctx, arm{s.best, list}, arm{s.best.with(name, value), list})
		if err != nil {
			return err
		}
		x := c.score(0, 1, everywhere)
		why := ""
		if size, loss := c.worst(0, 1); x.passes() && loss < worstLoss {
			why = fmt.Sprintf("slower at %s by %.0f %%", text(size), -100*part(loss))
		} else if x.passes() {
			if why, err = c.again(ctx, 0, 1, everywhere); err != nil {
				return err
			}
		}
		s.tried(name, value, x, why)
	}
	return nil
}

// tried notes the outcome of a contest of a value with the best one so far, and
// takes it if it is clearly better and nothing stands against it.
func (s *search) tried(name, value string, x score, why string) {
	t := trial{Param: name, Value: value, Beside: s.best[name], Gain: part(x.gain), Needed: part(x.margin), Why: why, Taken: x.passes() && why == ""}
	switch {
	case !x.known:
		t.Why = "too few samples in the near state"
		s.note("%s: %s", strings.TrimSuffix(name+"="+value, "="), t.Why)
	case why != "":
		s.note("%s=%s: %+.1f %%, but %s", name, value, 100*t.Gain, why)
	default:
		s.note("%s=%s: %+.1f %% beside %s; %.1f %% are needed", name, value, 100*t.Gain, t.Beside, 100*t.Needed)
	}
	s.trials = append(s.trials, t)
	if t.Taken {
		s.best = s.best.with(name, value)
	}
}

// sum is what the values that were taken do together, beside the defaults.
type sum struct {
	What   string  `json:"what"`
	Gain   float64 `json:"gain"`
	Needed float64 `json:"noise"` // what it would take to be believed
}

// together sets all that was taken beside the defaults: values that are good one
// by one must not be bad together, nor for messages that nobody looked at. If they
// are, or if it can't be told, the defaults stay.
func (s *search) together(ctx context.Context) error {
	if maps.Equal(s.best, s.defaults) {
		return nil
	}
	s.end = s.end.Add(reserve)
	stay := ""
	for _, class := range []struct {
		what  string
		list  []load
		param string // looked at only if this has changed
	}{
		{"8 bytes", []load{
			{bench: "latency", ranks: processors, min: 8, max: 8, iterations: 10000, warmup: 100},
			{bench: "bw", ranks: processors, min: 8, max: 8, iterations: 1000, warmup: 10},
		}, ""},
		{"ordinary memory", loads(smallest, s.most, false), ""},
		{"memory of AllocMem", loads(smallest, s.most, true), ""},
		{fmt.Sprintf("%d ranks on two processors", crowdRanks), crowdLoads(16*kib, min(s.most, mib)), ""},
		{"collectives of two ranks", collectiveLoads(processors, 64*kib), sharedOfTwo},
		{fmt.Sprintf("collectives of %d ranks", crowdRanks), collectiveLoads(crowdRanks, s.mostShared()), sharedMost},
	} {
		if s.best[class.param] == s.defaults[class.param] && class.param != "" {
			continue
		}
		c, err := s.contest(ctx, arm{s.defaults, class.list}, arm{s.best, class.list})
		if err != nil {
			return err
		}
		x := c.score(0, 1, everywhere)
		s.sums = append(s.sums, sum{class.what, part(x.gain), part(x.margin)})
		s.note("all together, %s: %+.1f %% beside the defaults", class.what, 100*part(x.gain))
		switch {
		case !x.known:
			stay = "too few samples in the near state"
		case x.fails():
			stay = "together they are worse for " + class.what
		}
	}
	if stay != "" {
		s.note("the defaults stay: %s", stay)
		s.best = s.defaults
		for i := range s.trials {
			if s.trials[i].Taken {
				s.trials[i].Taken, s.trials[i].Why = false, stay
			}
		}
	}
	return nil
}
