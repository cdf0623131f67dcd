package main

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBound_MeetsAndString(t *testing.T) {
	for _, c := range []struct {
		b    bound
		text string
		met  float64
		not  float64
	}{
		{bound{AtMost: 2}, "<= 2.00", 0, 2.01},
		{bound{AtLeast: 1 / 1.3}, ">= 0.77", 0.78, 0.76},
		{oneAnother(0.10), "0.91 to 1.10", 0.91, 1.11},
		{oneAnother(0.10), "0.91 to 1.10", 1.1, 0.9},
	} {
		if c.b.String() != c.text || !c.b.meets(c.met) || c.b.meets(c.not) {
			t.Errorf("%s (want %s): %g meets %t, %g meets %t", c.b, c.text, c.met, c.b.meets(c.met), c.not, c.b.meets(c.not))
		}
	}
}

// A cliff may lie many sizes below the one that is faster.
func TestCliffs_SteepestOneIsFound(t *testing.T) {
	cv := &curve{Unit: "us"}
	for size, us := range []float64{0.1, 0.1, 0.3, 0.29, 0.25, 0.2, 0.4} {
		cv.Points = append(cv.Points, point{MessageBytes: size, Value: us})
	}
	worst, of, err := steepest(cv, slower)
	if err != nil || math.Abs(worst-1.5) > 1e-9 || of != "2 B 0.300 / 5 B 0.200 us" {
		t.Errorf("%g, %q, error %v", worst, of, err)
	}
	cv.Points[5].Value = 0.3
	if worst, _, _ = steepest(cv, slower); math.Abs(worst-1.2) > 1e-9 {
		t.Errorf("%g", worst)
	}
	if _, _, err := steepest(&curve{NotMeasured: "no ferry"}, slower); err == nil || err.Error() != "no ferry" {
		t.Errorf("of nothing: %v", err)
	}
}

// Bandwidth falls and rate rises with the size, so that each figure has another cliff.
func TestCliffs_BandwidthAndRate(t *testing.T) {
	at := func(values ...float64) *curve {
		cv := &curve{Unit: "GB/s"}
		for i, v := range values {
			cv.Points = append(cv.Points, point{MessageBytes: 1 << i, Value: v})
		}
		return cv
	}
	// The committed bandwidth at 256, 512 and 1024 B: 5.1, 3.3 and 13.9 GB/s.
	worst, of, err := steepest(at(5.0, 3.2, 14), slower)
	if err != nil || math.Abs(worst-5.0/3.2) > 1e-9 || of != "1 B 5.00 / 2 B 3.20 GB/s" {
		t.Errorf("%g, %q, error %v", worst, of, err)
	}
	// The rate there: 19.4, 6.1 and 13.8 million/s.
	if worst, of, err = steepest(at(19.4, 6.1, 13.8), rarer); err != nil || math.Abs(worst-13.8/6.1) > 1e-9 || of != "2 B 6.10 / 4 B 13.8 GB/s" {
		t.Errorf("%g, %q, error %v", worst, of, err)
	}
	for _, x := range cliffs() {
		for i, f := range x.sizeRanges {
			if !f.usesMedian || i > 0 && f.MessageBytes*2 != x.sizeRanges[i-1].upTo*3 {
				t.Errorf("%s: part %d from %d", x.name, i, f.MessageBytes)
			}
		}
	}
}

func TestCurve_Samples_CountInTheirState(t *testing.T) {
	b := bests{}
	b.of(outside).Add(25)
	b.of(ferryRanks).Add(25)
	at := func(value, hop float64) sample {
		return sample{Value: value, RawHopNS: hop, OutsideHopNS: 26, hopInstrument: ferryRanks}
	}
	cv := &curve{NotMeasured: "one sample failed", samplesBySize: map[int][]sample{
		16: {at(1, 26), at(9, 90), at(2, 27)},
		8:  {at(1, 26), at(5, 90), at(9, 90)},
	}}
	cv.settle(b)
	want := []point{{8, 5, 90, 3, 3, 0}, {16, 1.5, 26.5, 2, 3, 9}}
	if len(cv.Points) != 2 || cv.Points[0] != want[0] || cv.Points[1] != want[1] || cv.NotMeasured != "" {
		t.Errorf("%+v", cv)
	}
}

func TestMemory_OfJob(t *testing.T) {
	row := func(what string, kib float64) benchRow {
		return benchRow{Bench: "memory/" + what, Ranks: 32, Unit: "KiB", Avg: kib}
	}
	m := memoryRow{Ranks: 32}
	rows := []benchRow{row("private", 1024), row("pss", 2048), row("shm", 8192)}
	if err := m.fill(rows, 3); err != nil || m.PrivateMiB != 1 || m.ShareMiB != 2 || m.ShmMiB != 5 {
		t.Errorf("%+v, error %v", m, err)
	}
	for _, bad := range [][]benchRow{nil, rows[:2], {row("private", 0)}, {{Bench: "memory/pss", Ranks: 2, Unit: "KiB", Avg: 1}}} {
		if err := m.fill(bad, 0); err == nil {
			t.Errorf("accepted: %+v", bad)
		}
	}
	ratio, _, err := growth([]memoryRow{
		{Ranks: 32, ProgramTitle: "ferry", EarlierMessages: toNeighbours, ShmMiB: 32}, {Ranks: 32, ProgramTitle: "MPICH", EarlierMessages: toNeighbours, ShmMiB: 1},
		{Ranks: 130, ProgramTitle: "ferry", EarlierMessages: toNeighbours, ShmMiB: 195}, {Ranks: 32, ProgramTitle: "ferry", EarlierMessages: "to everyone", ShmMiB: 99},
	})
	if err != nil || ratio != 1.5 {
		t.Errorf("growth %g, error %v", ratio, err)
	}
	if _, _, err := growth([]memoryRow{{Ranks: 32, ProgramTitle: "ferry", EarlierMessages: toNeighbours, NotMeasured: "it crashed"}}); err == nil {
		t.Error("growth of what was not measured")
	}
}

func TestCompare_OwnSettings_Alternate(t *testing.T) {
	needTwoProcessors(t)
	log := filepath.Join(t.TempDir(), "log")
	args := world(t, "case \"$*\" in *single*) echo single;; *multiple*) echo multiple;; esac >>"+log+"; echo '"+recorded+"'", "exit 1")
	args[len(args)-1] = "^ThreadMultiple.* latency|instructions"
	if err := run(t.Context(), args, t.Output()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if strings.ReplaceAll(string(b), "multiple\nsingle\n", "") != "" {
		t.Errorf("order of samples: %q", b)
	}
	_, md := results(t, args)
	for _, want := range []string{
		"| ThreadMultiple to ThreadSingle, 8 B latency | **1.00** met | 0.210 / 0.210 us | <= 1.15 |",
		"| cid.policy gather to agree, instructions of 8 B through ob1 | **1.00** met | 603 / 600 instructions | 0.98 to 1.02 |",
		"| cid.policy lazy to agree, instructions of 8 B through ob1 | **1.10** short | 660 / 600 instructions | 0.98 to 1.02 |",
	} {
		if !strings.Contains(md, want) {
			t.Errorf("the results lack %q:\n%s", want, md)
		}
	}
}

func TestParseCounts_AllPolicies(t *testing.T) {
	for _, bad := range []string{"", "{", `{"pml":"ob1","policy":"agree","instructions":1}`, strings.Replace(instructionsPrinted, "603", "0", 1), strings.Replace(instructionsPrinted, "cm", "ucx", 1)} {
		if each, err := parseCounts(bad); err == nil {
			t.Errorf("%q: %v", bad, each)
		}
	}
}

func TestOwn_CountFails_ResultsAreJSON(t *testing.T) {
	c := &comparison{options: &options{}, note: func(string, ...any) {}}
	o, err := c.own(t.Context(), ownRow{name: "a ratio", measureValue: func(context.Context) (float64, string, error) {
		return math.NaN(), "", errors.New("no counts")
	}})
	if err != nil || o.NotMeasured != "no counts" {
		t.Errorf("%+v, %v", o, err)
	}
	if _, err := json.Marshal(o); err != nil {
		t.Error(err)
	}
}
