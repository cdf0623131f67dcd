package main

import (
	"slices"
	"strings"
	"testing"
)

func TestSeries_OfFailures_AreThoseOfOpenMPIFrom5(t *testing.T) {
	peers, err := loadPeers("../peers/peers.json")
	if err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string]int{"4.1.4": 0, "5.0.7": 1} {
		var list []peer
		for _, p := range peers {
			list = append(list, p.of(version))
		}
		for _, f := range failureFigures() {
			all := (&options{ferryPath: "ours", buildDir: "built"}).series(f, list)
			if len(all) != want {
				t.Errorf("%s beside Open MPI %s: %d series, want %d", f.Name, version, len(all), want)
			}
			for _, s := range all {
				if theirs := strings.Join(s.theirs.args, " "); !strings.Contains(theirs, "--with-ft ulfm") || !strings.Contains(theirs, "built/openmpi "+f.BenchName) {
					t.Errorf("%s: %s", f.Name, theirs)
				}
			}
		}
	}
}

// A rank that is killed gives its processor and its half of the cache line away.
func TestRecovery_RanksHaveCores_TakesNoHopInside(t *testing.T) {
	recovery := failureFigures()[2]
	recovery.Ranks = 1
	if !recovery.bound() || recovery.hopInside() {
		t.Errorf("bound %v, hop inside %v", recovery.bound(), recovery.hopInside())
	}
	recovery.Ranks = 2
	if recovery.hopInside() {
		t.Error("two ranks take a hop inside")
	}
	args := recovery.commandLine("ours")
	if want := []string{"ours", "bench", "recover", "-n", "4"}; !slices.Equal(args[:len(want)], want) {
		t.Errorf("%q", args)
	}
}

func TestFailureRows_OfOurs_AreBesideAnotherBenchmark(t *testing.T) {
	o := &options{ferryPath: "ours"}
	var got []string
	for _, f := range failureRows() {
		s := o.series(f, nil)[0]
		got = append(got, strings.Join([]string{f.BenchName, s.opposite().BenchName, f.wantedBound.String()}, " "))
		for _, args := range [][]string{s.ours.args, s.theirs.args} {
			if args[0] != "ours" {
				t.Errorf("%s: %q", f.Name, args)
			}
		}
	}
	if want := []string{"agree allreduce <= 2.50", "shrink create <= 6.00", "agree allreduce <= 2.50", "shrink create <= 6.00"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
