package main

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func fig(t *testing.T, name string) figure {
	t.Helper()
	list := selected(regexp.MustCompile("^" + regexp.QuoteMeta(name) + "$"))
	if len(list) != 1 {
		t.Fatalf("%d figures are called %s", len(list), name)
	}
	return list[0]
}

func TestRowsAreConvertedToTheFiguresUnit(t *testing.T) {
	for _, c := range []struct {
		figure, output string
		value, hop     float64
	}{
		{"8 B latency", recorded, 0.21, 26.5},
		{"bandwidth 1 MiB", `{"bench":"bw","size":1048576,"ranks":2,"unit":"MB/s","avg":13200,"raw_hop_ns":50}`, 13.2, 50},
		{"8 B message rate", `{"bench":"mbw_mr","size":8,"ranks":2,"unit":"messages/s","avg":8700000,"raw_hop_ns":50}`, 8.7, 50},
		{"session + first communicator to MPI_Init, 32 ranks", `{"bench":"init","size":0,"ranks":32,"unit":"ms","avg":751.5,"raw_hop_ns":0}`, 751.5, 0},
	} {
		value, hop, err := parseRow(c.output, fig(t, c.figure))
		if err != nil || math.Abs(value-c.value) > 1e-9 || hop != c.hop {
			t.Errorf("%s: %g, hop %g, error %v", c.figure, value, hop, err)
		}
	}
}

// A row of another benchmark, size or unit would be a wrong figure, silently.
func TestRowOfSomethingElseIsRefused(t *testing.T) {
	f := fig(t, "8 B latency")
	for _, c := range [][2]string{
		{`"latency"`, `"bw"`}, {`"size":8`, `"size":16`}, {`"ranks":2`, `"ranks":4`}, {`"us"`, `"ms"`},
		{`"avg":0.21`, `"avg":0`}, {`"avg":0.21`, `"avg":-1`}, {`"raw_hop_ns":26.5`, `"raw_hop_ns":0`},
		{recorded, recorded + recorded}, {recorded, ""}, {recorded, "mpirun has a warning\n" + recorded},
	} {
		changed := strings.Replace(recorded, c[0], c[1], 1)
		if changed == recorded {
			t.Fatalf("%q is not in the row", c[0])
		}
		if _, _, err := parseRow(changed, f); err == nil {
			t.Errorf("accepted: %q", changed)
		}
	}
}

func TestTheSlowestRankIsTheFigure(t *testing.T) {
	if ms, err := largestTime("1000000\n3500000\n2000000\n", 3); err != nil || ms != 3.5 {
		t.Errorf("%g ms, error %v", ms, err)
	}
	for _, out := range []string{"", "1\n", "1\n2\nx\n", "1\n2\n-3\n", "1\n2\n3\n4\n"} {
		if ms, err := largestTime(out, 3); err == nil {
			t.Errorf("%q: %g ms", out, ms)
		}
	}
}

func TestWorkOfOthersIsSeen(t *testing.T) {
	before, err := parseBusy("cpu  100 10 50 9000 400 5 5 30 7 0\ncpu0 1 2 3\n")
	if err != nil || before != 2*time.Second {
		t.Fatalf("%v, error %v", before, err)
	}
	for _, s := range []string{"", "cpu 1 2 3\n", "cpu0 1 2 3 4 5 6 7 8\n", "cpu a\n"} {
		if d, err := parseBusy(s); err == nil {
			t.Errorf("%q: %v", s, d)
		}
	}
	if n := others(1500*time.Millisecond, time.Second, time.Second); n != 0.5 {
		t.Errorf("%g processors", n)
	}
	if n := others(0, time.Second, 0); n != 0 {
		t.Errorf("%g processors", n)
	}
	if b, err := busy(); err != nil || b <= 0 {
		t.Errorf("%v, error %v", b, err)
	}
}

func FuzzOutput(f *testing.F) {
	for _, s := range []string{recorded, recorded + recorded, "1\n2\n", "{", `{"avg":1e400}`, ""} {
		f.Add(s)
	}
	figs := figures()
	f.Fuzz(func(t *testing.T, output string) {
		for _, x := range figs {
			if v, hop, err := parseRow(output, x); err == nil && (!(v > 0) || math.IsInf(v, 0) || hop < 0) {
				t.Errorf("%s: %g, hop %g", x.Name, v, hop)
			}
		}
		if ms, err := largestTime(output, 2); err == nil && !(ms > 0) {
			t.Errorf("%g ms", ms)
		}
		_, _ = parseBusy(output) // any text, no panic
	})
}

func FuzzPeers(f *testing.F) {
	f.Add([]byte(`[{"name":"a","title":"A","compiler":"c","launcher":"l","settings":[{"title":"as it comes"}]}]`))
	f.Add([]byte(`[{"name":"../a"}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		peers, err := parsePeers(b)
		for _, p := range peers {
			if err == nil && (strings.Contains(p.Name, "/") || len(p.Settings) == 0) {
				t.Errorf("%+v", p)
			}
		}
	})
}

// The rows are those of the speed issue; each side's command line has its loops.
func TestBothSidesRunTheSameLoops(t *testing.T) {
	figs := figures()
	if len(figs) != 21 {
		t.Errorf("%d figures", len(figs))
	}
	peers, err := loadPeers("../peers/peers.json")
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{ferry: "ferry", build: "build"}
	seen := map[string]bool{}
	for _, f := range figs {
		if seen[f.Name] {
			t.Errorf("%s is there twice", f.Name)
		}
		seen[f.Name] = true
		if units[f.Unit].each == 0 || f.Default == 0 || f.Best == 0 || f.Aim == "" {
			t.Errorf("%s: unit %q, wanted %g, %g, aim %q", f.Name, f.Unit, f.Default, f.Best, f.Aim)
		}
		ours := r.ours(f)
		for _, p := range peers {
			theirs := r.theirs(p, p.Settings[0], f)
			if f.Bench == "init" || f.Bench == "hello" {
				continue // once on both sides
			}
			for _, flag := range []string{"-i", "-x", "-n"} {
				a, b := slices.Index(ours, flag), slices.Index(theirs, flag)
				if a < 0 || b < 0 || ours[a+1] != theirs[b+1] {
					t.Errorf("%s: %s differs: %v, %v", f.Name, flag, ours, theirs)
				}
			}
			if bound := slices.Contains(theirs, "core"); bound != f.bound() {
				t.Errorf("%s: bound is %t in %v", f.Name, bound, theirs)
			}
		}
	}
}

func TestSettingsOfTheUserDoNotReachTheSamples(t *testing.T) {
	got := plainEnvironment([]string{"HOME=/x", "FERRY_BTL_SHM_EAGER_LIMIT=1", "OMPI_MCA_btl=tcp,self", "MPIR_CVAR_NOLOCAL=1", "GOGC=off", "PATH=/y"})
	if !slices.Equal(got, []string{"HOME=/x", "PATH=/y"}) {
		t.Errorf("%q", got)
	}
}
