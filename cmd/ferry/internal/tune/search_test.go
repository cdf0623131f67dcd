package tune

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/internal/launch"
)

func TestWhatIsClearlyBetterIsTaken(t *testing.T) {
	for name, c := range map[string]struct {
		cost func(message) float64
		want setting // what differs from the defaults
	}{
		"the defaults are best": {usual, nil},
		"a smaller ring": {func(m message) float64 {
			cost := usual(m)
			if m.ring == 256*kib && m.path != "memory" {
				cost *= 0.8
			}
			return cost
		}, setting{ringSize: "256KiB"}},
		"smaller frames": {func(m message) float64 {
			cost := usual(m)
			if m.path == "frames" && m.fragment == 16*kib {
				cost *= 0.7
			}
			return cost
		}, setting{fragmentSize: "16KiB"}},
		"frames from 4 KiB on": {func(m message) float64 {
			if m.path == "eager" && m.size >= 4*kib {
				return 2 * usual(message{path: "frames", size: m.size, ring: m.ring, fragment: m.fragment, crowd: m.crowd})
			}
			return usual(m)
		}, setting{eagerLimit: "4KiB", memoryMin: "4KiB"}}, // what isn't eager can be copied once
		"memory from 256 KiB on": {func(m message) float64 {
			if m.path == "memory" && m.size < 256*kib {
				return 5 * usual(m)
			}
			return usual(m)
		}, setting{memoryMin: "256KiB"}},
		"memory never": {func(m message) float64 {
			if m.path == "memory" {
				return 3 * usual(m)
			}
			return usual(m)
		}, setting{memoryMin: "8MiB"}},
		"shared memory up to 16 KiB for two": {func(m message) float64 {
			if m.path == "area" && !m.crowd && m.size <= 16*kib {
				return 0.4 * usual(message{path: "messages", size: m.size})
			}
			return usual(m)
		}, setting{sharedOfTwo: "16KiB"}},
		"shared memory up to 4 KiB for many": {func(m message) float64 {
			if m.path == "area" && m.crowd && m.size > 4*kib {
				return 2 * usual(message{path: "messages", size: m.size, crowd: true})
			}
			return usual(m)
		}, setting{sharedMost: "4KiB"}},
	} {
		s := find(t, &machine{cost: c.cost, noise: 0.03}, 1)
		want := usualDefaults.with()
		maps.Copy(want, c.want)
		if !maps.Equal(s.best, want) {
			t.Errorf("%s: %v; trials %+v, together %+v", name, s.best, s.trials, s.sums)
		}
		changed := 0
		for _, p := range s.params() {
			if p.Value != p.Default {
				changed++
				if p.Gain < 0.05 {
					t.Errorf("%s: %s gains %g", name, p.Name, p.Gain)
				}
			}
		}
		if changed != len(c.want) {
			t.Errorf("%s: %d parameters changed, want %d", name, changed, len(c.want))
		}
	}
}

// A value that is 2 % better is not worth a machine that differs from others; and
// noise must not look like a gain, however it falls.
func TestNoiseChangesNothing(t *testing.T) {
	flat := func(m message) float64 {
		m.fragment = 64 * kib
		cost := usual(message{path: m.path, size: m.size, ring: mib, fragment: m.fragment, crowd: m.crowd})
		if m.ring < mib {
			cost *= 0.98
		}
		return cost
	}
	for _, noise := range []float64{0.03, 0.1, 0.3} {
		changed := 0
		const searches = 30
		for seed := range uint64(searches) {
			if s := find(t, &machine{cost: flat, noise: noise}, seed); !maps.Equal(s.best, s.defaults) {
				changed++
			}
		}
		// Each has nine contests.
		if changed > 1 {
			t.Errorf("noise %g: %d of %d searches have found something", noise, changed, searches)
		}
	}
}

func TestFarSamplesDontCount(t *testing.T) {
	x := &machine{noise: 0.03, far: 0.3, cost: func(m message) float64 {
		cost := usual(m)
		if m.ring == 256*kib {
			cost *= 0.8
		}
		return cost
	}}
	s := find(t, x, 2)
	if want := usualDefaults.with(ringSize, "256KiB"); !maps.Equal(s.best, want) {
		t.Errorf("%v; trials %+v", s.best, s.trials)
	}
	if s.counted == s.samples || s.counted < s.samples/3 {
		t.Errorf("%d of %d samples counted; 3 of 10 jobs were far", s.counted, s.samples)
	}
	x.far = 1 // always: there is nothing that would be nearer
	s = find(t, x, 1)
	if want := usualDefaults.with(ringSize, "256KiB"); !maps.Equal(s.best, want) || s.counted != s.samples {
		t.Errorf("nothing but far samples: %v, %d of %d counted", s.best, s.counted, s.samples)
	}
}

// TestMachineThatIsSeldomNearHasRows, which say so: a path without figures tells
// nobody anything. Values need more than that.
func TestMachineThatIsSeldomNearHasRows(t *testing.T) {
	for _, far := range []float64{0.7, 0.85} {
		s := find(t, &machine{noise: 0.03, far: far}, 1)
		if !maps.Equal(s.best, s.defaults) {
			t.Errorf("far %g: %v", far, s.best)
		}
		tried := map[string]bool{}
		for _, x := range s.trials {
			tried[x.Param] = true
		}
		if len(tried) != len(names) {
			t.Errorf("far %g: only %v were tried", far, tried)
		}
		var b bytes.Buffer
		if err := s.print(&b); err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(`(?m)^64KiB .* (few|far) +offered$`).MatchString(b.String()) || strings.Contains(b.String(), "NaN") {
			t.Errorf("far %g:\n%s", far, b.String())
		}
		raw, err := s.evidence()
		if err != nil || !bytes.Contains(raw, []byte(`"state":"far"`)) {
			t.Errorf("far %g: %v, %.300s", far, err, raw)
		}
	}
}

// TestLuckyHopMakesNothingFar, however early it comes.
func TestLuckyHopMakesNothingFar(t *testing.T) {
	s := newSearch(&machine{noise: 0.03}, 1)
	s.bestHop.See(12)
	s.bestHop.See(13)
	if err := s.run(context.Background()); err != nil || s.counted != s.samples {
		t.Errorf("%v, %d of %d samples counted, best hop %.0f ns", err, s.counted, s.samples, s.bestHop.NS())
	}
}

// What helps some sizes and ruins another is no help.
func TestNoSizeIsGivenUpForOthers(t *testing.T) {
	s := find(t, &machine{noise: 0.02, cost: func(m message) float64 {
		cost := usual(m)
		if m.ring == 256*kib {
			cost *= 0.8
			if m.size == 64*kib {
				cost *= 1.6
			}
		}
		return cost
	}}, 1)
	if !maps.Equal(s.best, s.defaults) || !strings.Contains(s.trials[0].Why, "slower at 64KiB") {
		t.Errorf("%v; trials %+v", s.best, s.trials)
	}
}

func TestValuesThatAreBadTogetherAreGivenUp(t *testing.T) {
	s := find(t, &machine{noise: 0.02, cost: func(m message) float64 {
		cost := usual(m)
		if m.ring == 256*kib {
			cost *= 0.8
			if m.size == 8 {
				cost *= 2
			}
		}
		return cost
	}}, 1)
	if !maps.Equal(s.best, s.defaults) || len(s.sums) != 4 || s.sums[0].Gain > -0.2 {
		t.Errorf("%v, together %+v", s.best, s.sums)
	}
	for _, x := range s.trials {
		if x.Taken {
			t.Errorf("still taken: %+v", x)
		}
	}
	if !strings.Contains(s.trials[0].Why, "worse for 8 bytes") {
		t.Errorf("why: %+v", s.trials[0])
	}
}

func TestWithoutTimeTheDefaultsStay(t *testing.T) {
	s := newSearch(&machine{}, 1)
	s.end = time.Now()
	if err := s.run(context.Background()); err != nil || !maps.Equal(s.best, s.defaults) {
		t.Errorf("%v, %v", s.best, err)
	}
	var b bytes.Buffer
	if err := s.print(&b); err != nil {
		t.Error(err)
	}
	for _, row := range []string{`64KiB .*far +offered`, `btl\.shm\.eager_limit +- +32KiB +- +- +no: too few samples.*`} {
		if !regexp.MustCompile("(?m)^" + row + "$").MatchString(b.String()) {
			t.Errorf("no row %s in\n%s", row, b.String())
		}
	}
}

func TestAJobThatFailsEndsTheSearch(t *testing.T) {
	s := newSearch(&machine{fail: true}, 1)
	if err := s.run(context.Background()); err == nil {
		t.Error("no error")
	}
}

// The tables show the paths of the values in use, and so does JSON.
func TestTablesSayWhichPathIsTaken(t *testing.T) {
	s := find(t, &machine{noise: 0.02, cost: func(m message) float64 {
		if m.path == "memory" && m.size < 256*kib {
			return 5 * usual(m)
		}
		return usual(m)
	}}, 1)
	raw, err := s.evidence()
	if err != nil {
		t.Fatal(err)
	}
	var e Evidence
	if err := json.Unmarshal(raw, &e); err != nil {
		t.Fatal(err)
	}
	type key struct {
		ranks  int
		memory string // or "collective"
		size   int
	}
	taken := map[key]string{}
	for _, f := range e.Figures {
		if f.Bcast > 0 {
			f.Memory = "collective"
		}
		if f.Taken {
			taken[key{f.Ranks, f.Memory, f.Size}] = f.Path
		}
	}
	for k, want := range map[key]string{
		{2, "ordinary", kib}:        "eager",
		{2, "ordinary", 16 * kib}:   "eager",
		{2, "ordinary", 32 * kib}:   "offered",
		{2, "ordinary", 4 * mib}:    "offered",
		{2, "AllocMem", 128 * kib}:  "frames",
		{2, "AllocMem", 256 * kib}:  "memory",
		{2, "collective", 512}:      "area",
		{8, "collective", 64 * kib}: "area",
	} {
		if taken[k] != want {
			t.Errorf("%+v: %q, want %s", k, taken[k], want)
		}
	}
	var b bytes.Buffer
	if err := s.print(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"SIZE    offered us  GB/s  eager us  GB/s  STATE  TAKEN", "btl.shm.memory_min     256KiB  8KiB"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// TestBusyMachineHasFewerIterations: a message that waits for a time slice takes ten
// thousand times as long, and a job of so many would be taken for one that hangs.
func TestBusyMachineHasFewerIterations(t *testing.T) {
	for suffice, want := range map[string][]string{
		"2000": {"2000 100"},
		"200":  {"2000 100", "200 10"},
		"20":   {"2000 100", "200 10", "20 5"},
		"2":    {"2000 100", "200 10", "20 5"},
	} {
		var tried []string
		m := newSearch(&machine{}, 1).meter
		start, late := m.start, 0
		m.note = func(string, ...any) { late++ }
		m.start = func(ctx context.Context, ranks int, s setting, args ...string) ([]byte, []launch.Report, error) {
			i, x := args[slices.Index(args, "-i")+1], args[slices.Index(args, "-x")+1]
			tried = append(tried, i+" "+x)
			if len(i) <= len(suffice) {
				return start(ctx, ranks, s, args...)
			}
			if _, inTime := ctx.Deadline(); !inTime {
				return nil, nil, errors.New("a hang")
			}
			return nil, nil, fmt.Errorf("job given up: %w", errLate) // what launch says of the context's cause
		}
		l := load{bench: "latency", ranks: processors, min: kib, max: kib, iterations: 2000, warmup: 100}
		for range 2 { // from then on
			if _, err := m.bench(t.Context(), usualDefaults, l); (err != nil) != (suffice == "2") {
				t.Errorf("%s would suffice: %v", suffice, err)
			}
		}
		if want = append(want, want[len(want)-1]); !slices.Equal(tried, want) || late != len(want)-2 {
			t.Errorf("%s would suffice: tried %q, want %q; %d notes", suffice, tried, want, late)
		}
	}
}
