package bench

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestBinding_GoroutineRanks_HaveCoresOfTheirOwnOrNone(t *testing.T) {
	for _, c := range []struct {
		name                         string
		processes, goroutines, cores int
		wantBind                     bool
		wantCores                    int
	}{
		{"latency", 2, 0, 2, true, 0},
		{"barrier", 8, 0, 2, true, 0}, // As always, they share.
		{"latency", 1, 2, 2, false, 2},
		{"latency", 2, 1, 2, true, 0},
		{"barrier", 2, 2, 2, false, 0},
		{"barrier", 2, 2, 4, false, 2},
		{"latency_mt", 2, 0, 6, false, 3},
		{"latency_mt", 2, 0, 2, true, 0},
	} {
		o := options{benchmark: benchmark{name: c.name}, rankOptions: rankOptions{processCount: c.processes, goroutinesPerProcess: c.goroutines, goroutinesPerRank: 3}}
		o.rankCount = c.processes * max(1, c.goroutines)
		if bind, cores := o.binding(c.cores); bind != c.wantBind || cores != c.wantCores {
			t.Errorf("%+v: bind %v, cores %d", c, bind, cores)
		}
	}
}

// checkedLine returns the options of a command line, and the error of their check.
func checkedLine(t *testing.T, line string) (o options, err error) {
	t.Helper()
	cmd := o.command()
	if err := cmd.ParseFlags(strings.Fields(line)); err != nil {
		t.Fatal(err)
	}
	o.isGiven = cmd.Flags().Changed
	return o, o.check(cmd.Flags().Args())
}

func TestCheckRanks_Goroutines_MultiplyProcesses(t *testing.T) {
	for line, want := range map[string]string{
		"latency":                                  "2 processes, 2 ranks",
		"latency --goroutines 2":                   "1 processes, 2 ranks",
		"latency -n 2 --goroutines 1":              "2 processes, 2 ranks",
		"latency --goroutines 1":                   "1 processes, 1 ranks",
		"barrier -n 3 --goroutines 4":              "3 processes, 12 ranks",
		"latency -n 2 --goroutines 2":              "-n 2 --goroutines 2: latency is between 2 ranks",
		"mbw_mr -n 3 --goroutines 1":               "-n 3 --goroutines 1: mbw_mr needs pairs of ranks",
		"init --goroutines 2":                      "init measures processes",
		"latency_mt --goroutines 2":                "latency_mt measures processes",
		"latency --goroutines 0":                   "want 1 to 65535 goroutine ranks",
		"latency --live 1MiB --goroutines 2":       "are about processes",
		"latency --threads 2":                      "--threads: latency has one goroutine of each rank",
		"mbw_mr --threads 4":                       "2 processes, 2 ranks",
		"mbw_mr -n 4 --threads 3 --streams":        "4 processes, 4 ranks",
		"mbw_mr --threads 0":                       "--threads 0: want 1 to",
		"mbw_mr --threads 1025 --streams":          "--threads 1025: want 1 to",
		"mbw_mr -n 3 --threads 2 --streams":        "-n 3: mbw_mr needs pairs of ranks",
		"mbw_mr --streams":                         "--streams: mbw_mr has no pairs of goroutines; mbw_mr --threads has",
		"latency_mt --streams":                     "--streams: latency_mt has no pairs of goroutines",
		"mbw_mr --threads 2 --goroutines 2":        "--threads: a goroutine rank is one goroutine",
		"mbw_mr --threads 2 --thread-level single": "--thread-level single: mbw_mr has several",
		"latency_mt --threads 0":                   "--threads 0: want 1 to",
		"latency_mt --thread-level serialized":     "--thread-level serialized: latency_mt has several",
	} {
		o, err := checkedLine(t, line)
		switch {
		case strings.HasSuffix(want, " ranks") && strings.Contains(want, "processes, "):
			if got := fmt.Sprintf("%d processes, %d ranks", o.processCount, o.rankCount); err != nil || got != want {
				t.Errorf("%s: %s, %v, want %s", line, got, err, want)
			}
		case err == nil || !strings.Contains(err.Error(), want):
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
}

func TestRateOf_Pairs_CountTogether(t *testing.T) {
	if got := rateOf(4, 10, 1e6); got != 2.56e6 { // 2,560 messages in 1 ms.
		t.Errorf("%g messages/s", got)
	}
}

func TestBinding_PairedGoroutines_AreUnboundIfEachHasACore(t *testing.T) {
	o, err := checkedLine(t, "mbw_mr --threads 2")
	if err != nil {
		t.Fatal(err)
	}
	for available, want := range map[int]int{2: 0, 4: 2} {
		if bind, cores := o.binding(available); bind != (want == 0) || cores != want {
			t.Errorf("%d processors: bind %t, %d cores, want %d", available, bind, cores, want)
		}
	}
}

func TestSample_Merge_HasTheBatchesOfBoth(t *testing.T) {
	a, b := newSample(), newSample()
	a.add(2*time.Microsecond, 2)
	b.add(9*time.Microsecond, 3)
	a.merge(b)
	if r := a.times(Row{}, 1); a.operationCount != 5 || r.Avg != 2200 || !slices.IsSorted([]float64{990, r.Min, 1010, r.max, 3010}) {
		t.Errorf("%d operations, %+v", a.operationCount, r)
	}
}
