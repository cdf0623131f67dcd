package tune

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/internal/bench"
	"github.com/ferrympi/ferry/cmd/ferry/internal/launch"
	"github.com/ferrympi/ferry/framework"
)

// machine is one that is made up: it answers the jobs of a meter.
type machine struct {
	rng   *rand.Rand
	noise float64 // standard deviation of a figure, as a part of it
	far   float64 // how often a job falls into the far state
	fail  bool

	// cost is the time of a message in us, for paths "eager", "frames" and "memory",
	// or of a collective, for "area" and "messages". nil: ferry's defaults are best.
	cost func(m message) float64
}

type message struct {
	path, bench    string
	size           int
	ring, fragment int
	crowd          bool
}

// usual is a machine on which the defaults are best.
func usual(m message) float64 {
	size := float64(m.size)
	switch {
	case m.path == "area" && m.crowd:
		return 5 + size/10e3
	case m.path == "messages" && m.crowd:
		return 12 + size/100e3
	case m.path == "area":
		return 0.3 + size/8e3
	case m.path == "messages":
		return 0.7 + size/80e3
	}
	cost := map[string]float64{
		"eager":  0.1 + size/40e3,
		"frames": 0.5 + size/50e3,
		"memory": 0.1 + size/90e3,
	}[m.path]
	switch {
	case m.crowd:
		cost = 40 + size/8e3
	case m.path == "eager" && m.size >= 32*kib:
		cost *= 1.5
	}
	if m.path == "frames" && m.fragment != 64*kib {
		cost *= 1.1
	}
	if m.ring < mib {
		cost *= 1.05
	}
	return cost
}

func (x *machine) start(_ context.Context, ranks int, s setting, args ...string) ([]byte, []launch.Report, error) {
	if x.fail {
		return nil, nil, fmt.Errorf("as it should")
	}
	flag := func(name string) string { return args[slices.Index(args, name)+1] }
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	hop, slower := 25*(1+0.05*x.rng.Float64()), 1.0
	if x.rng.Float64() < x.far {
		hop, slower = 10*hop, 5
	}
	if args[1] == "hop" {
		err := enc.Encode(bench.Row{Bench: "hop", Ranks: ranks, Unit: "ns", Avg: hop, P50: hop, RawHop: hop})
		return out.Bytes(), nil, err
	}
	drift := x.noise * x.rng.NormFloat64() / 2 // of the job as a whole
	low, high, _ := strings.Cut(flag("-m"), ":")
	from, _ := strconv.Atoi(low)
	to, _ := strconv.Atoi(high)
	for size := from; size <= to; size *= 2 {
		m := message{bench: args[1], size: size, ring: cmp.Or(parse(s[ringSize]), mib), fragment: parse(s[fragmentSize]), crowd: ranks > processors}
		m.path = path(s, m, slices.Contains(args, "--alloc-mem=true"))
		us := x.cost(m) * slower * math.Exp(drift+x.noise*x.rng.NormFloat64())
		row := bench.Row{Bench: m.bench, Size: size, Ranks: ranks, Unit: "us", Avg: us, RawHop: hop}
		switch m.bench {
		case "bw":
			row.Unit, row.Avg = "MB/s", float64(size)/us
		case "mbw_mr":
			row.Unit, row.Avg = "messages/s", 1e6/us
		}
		if err := enc.Encode(row); err != nil {
			return nil, nil, err
		}
	}
	return out.Bytes(), nil, nil
}

func parse(text string) int {
	n, err := framework.ParseSize(text)
	if err != nil {
		panic(err)
	}
	return int(n)
}

// path is what ferry does under a setting.
func path(s setting, m message, allocMem bool) string {
	if m.bench == "bcast" || m.bench == "allreduce" {
		most := sharedOfTwo
		if m.crowd {
			most = sharedMost
		}
		if m.size <= parse(s[most]) {
			return "area"
		}
		return "messages"
	}
	switch {
	case m.size+24 <= min(parse(s[eagerLimit]), m.ring/4):
		return "eager"
	case allocMem && s[singleCopy] != "off" && m.size >= parse(s[memoryMin]):
		return "memory"
	}
	return "frames"
}

var usualDefaults = setting{
	ringSize: "0", fragmentSize: "64KiB", eagerLimit: "32KiB", memoryMin: "8KiB",
	sharedOfTwo: "2KiB", sharedMost: "64KiB",
}

func newSearch(x *machine, seed uint64) *search {
	x.rng = rand.New(rand.NewPCG(seed, 1))
	if x.cost == nil {
		x.cost = usual
	}
	return &search{
		step:  func(int, int, string) {},
		meter: &meter{start: x.start, wanted: 7, end: time.Now().Add(time.Hour), share: time.Minute, note: func(string, ...any) {}}, most: 4 * mib,
		defaults: usualDefaults, best: usualDefaults,
	}
}

func find(t *testing.T, x *machine, seed uint64) *search {
	t.Helper()
	s := newSearch(x, seed)
	if err := s.run(context.Background()); err != nil {
		t.Fatal(err)
	}
	return s
}
