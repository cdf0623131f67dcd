package main

import (
	"math"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/internal/hop"
)

// pairsOf makes pairs of ours, our hop, theirs, their hop.
func pairsOf(rows ...[4]float64) []pair {
	var out []pair
	for _, r := range rows {
		out = append(out, pair{
			Ours: sample{Value: r[0], RawHopNS: r[1], OutsideHopNS: 50, hopInstrument: ferryRanks},
			Peer: sample{Value: r[2], RawHopNS: r[3], OutsideHopNS: 50, hopInstrument: "openmpi"},
		})
	}
	return out
}

// drifting is recorded on a machine that changes between near (50 ns) and far (480 ns).
func drifting(t *testing.T) (*series, bests) {
	s := &series{fig: fig(t, "8 B latency"), peer: peer{Title: "Open MPI"}, setting: setting{Title: "as it comes", IsDefault: true}}
	s.pairs = pairsOf(
		[4]float64{0.14, 52, 0.16, 44}, [4]float64{1.10, 480, 0.15, 45}, [4]float64{0.13, 55, 0.14, 46},
		[4]float64{0.15, 60, 1.30, 470}, [4]float64{0.16, 74, 0.17, 60},
	)
	b := bests{}
	b.of(outside).Add(50)
	for _, p := range s.pairs {
		b.of(ferryRanks).Add(p.Ours.RawHopNS)
		b.of("openmpi").Add(p.Peer.RawHopNS)
	}
	return s, b
}

// A sample of ours in one state beside one of the peer's in the other is no ratio; both
// count, each in its state.
func TestResult_Samples_AreComparedInTheirState(t *testing.T) {
	s, b := drifting(t)
	if n := s.judge(b); n != 4 {
		t.Fatalf("%d near samples of each side, want 4", n)
	}
	r, ok := s.result(4)
	if !ok || r.State != hop.Near || r.OursTaken != 4 || r.PeersTaken != 4 || r.Other() != r.FarMedians {
		t.Errorf("%+v", r)
	}
	if math.Abs(r.Ours-0.145) > 1e-12 || math.Abs(r.Theirs-0.155) > 1e-12 || math.Abs(r.Ratio-0.145/0.155) > 1e-12 || r.RawHopNS != 57.5 {
		t.Errorf("medians %g and %g, ratio %g, hop %g", r.Ours, r.Theirs, r.Ratio, r.RawHopNS)
	}
	if r.BestPair.Ours != 0.13 || r.BestPair.Peer != 0.14 {
		t.Errorf("best pair %+v", r.BestPair)
	}
	if f := r.FarMedians; f == nil || f.Ours != 1.10 || f.Theirs != 1.30 || f.OursTaken != 1 || f.PeersTaken != 1 || f.BestPair != nil {
		t.Errorf("far: %+v", f)
	}
	if n := r.NearMedians.OursTaken + r.NearMedians.PeersTaken + r.FarMedians.OursTaken + r.FarMedians.PeersTaken; n != 2*len(s.pairs) {
		t.Errorf("%d samples are reported, of %d", n, 2*len(s.pairs))
	}
	text := summarize(machineInfo{}, []*series{s}, b, 4).text("results")
	for _, want := range []string{"| far: 0.85 (1 and 1) |", "| near | 0.145 / 0.155 us | 0.94 |", "| far | 1.10 / 1.30 us | 0.85 | - |"} {
		if !strings.Contains(text, want) {
			t.Errorf("the results lack %q:\n%s", want, text)
		}
	}
}

func TestResult_StateOfOneSide_HasNoRatio(t *testing.T) {
	s, b := drifting(t)
	s.pairs = s.pairs[:3]
	s.judge(b)
	r, _ := s.result(2)
	if r.FarMedians == nil || r.FarMedians.Ours != 1.10 || r.FarMedians.Ratio != 0 || r.InOther() != "far: - (1 and 0)" {
		t.Errorf("%+v, %s", r.FarMedians, r.InOther())
	}
}

func TestResult_TooFewNearPairs_IsReported(t *testing.T) {
	s, b := drifting(t)
	s.judge(b)
	if r, _ := s.result(8); r.State != hop.Few || r.OursTaken != 4 {
		t.Errorf("4 of 8: %s, %d taken", r.State, r.OursTaken)
	}
	r, _ := s.result(9)
	if r.State != hop.Far || r.OursTaken != 5 || r.PeersTaken != 5 || r.Other() != r.NearMedians {
		t.Errorf("4 of 9: %s, %d taken", r.State, r.OursTaken)
	}
	rep := summarize(machineInfo{}, []*series{s}, b, 9)
	if !rep.Never() || !strings.Contains(rep.text("results"), "The processors were seldom or never near each other") {
		t.Error("a run without near samples doesn't say so")
	}
	if _, ok := (&series{fig: s.fig}).result(7); ok {
		t.Error("a result of nothing")
	}
}

// A better state that comes late makes earlier samples far ones; one hop doesn't.
func TestJudge_LaterHops_ChangeEarlierSamples(t *testing.T) {
	s, b := drifting(t)
	b.of("openmpi").Add(20)
	if n := s.judge(b); n != 4 {
		t.Errorf("one lucky hop: %d pairs are near", n)
	}
	b.of("openmpi").Add(21)
	b.of("openmpi").Add(20)
	if n := s.judge(b); n != 0 {
		t.Errorf("%d pairs are near", n)
	}
}

// Go's loop and C's take different times for the same hop.
func TestBests_Instruments_HaveSeparateLimits(t *testing.T) {
	b := bests{}
	b.of("openmpi").Add(20)
	b.of(ferryRanks).Add(27)
	b.of("mpich").Add(0) // not taken
	if !b.of(ferryRanks).Near(40) || b.of("openmpi").Near(31) || !b.of("mpich").Near(0) {
		t.Errorf("%v", b)
	}
	if ns := b.ns(); len(ns) != 2 || ns["openmpi"] != 20 || ns[ferryRanks] != 27 {
		t.Errorf("%v", ns)
	}
	b.of(outside).Add(25)
	if b.sample(sample{RawHopNS: 27, OutsideHopNS: 100, hopInstrument: ferryRanks}) {
		t.Error("the hop around the job does not count")
	}
}

func TestNeeds_Retries_End(t *testing.T) {
	s, b := drifting(t)
	if s.needs(b, 4, false) {
		t.Error("enough near samples, and still more")
	}
	if !s.needs(b, 5, false) {
		t.Error("no retry for far samples")
	}
	if s.needs(b, 5, true) || !s.needs(b, 6, true) {
		t.Error("late, only the pairs that each figure needs at least are taken")
	}
	s.failedPairs = 10
	if s.needs(b, 5, false) {
		t.Errorf("%d attempts for 5 pairs", attempts*5)
	}
}

func TestSummarize_StrongestPeer_Counts(t *testing.T) {
	f := fig(t, "bandwidth 1 MiB")
	mk := func(title, setting_ string, def bool, ours, theirs float64) *series {
		s := &series{fig: f, peer: peer{Title: title}, setting: setting{Title: setting_, IsDefault: def}}
		s.pairs = pairsOf([4]float64{ours, 50, theirs, 50})
		s.pairs[0].Ours.IsNear, s.pairs[0].Peer.IsNear = true, true
		return s
	}
	rep := summarize(machineInfo{}, []*series{
		mk("Open MPI", "as it comes", true, 26, 13), mk("Open MPI", "single_copy none", false, 26, 27), mk("MPICH", "as it comes", true, 26, 12),
	}, bests{}, 1)
	if len(rep.Rows) != 1 {
		t.Fatalf("%d rows", len(rep.Rows))
	}
	w := rep.Rows[0]
	if w.DefaultStanding.Peer != "Open MPI" || !w.DefaultStanding.IsMet || w.DefaultStanding.Ratio != 2 {
		t.Errorf("default %+v", w.DefaultStanding)
	}
	if w.BestStanding.Setting != "single_copy none" || w.BestStanding.IsMet || w.BestStanding.Ratio >= 1 {
		t.Errorf("best %+v", w.BestStanding)
	}
	if lat := fig(t, "8 B latency"); lat.Within(0.8).meets(0.9) || !lat.Within(0.8).meets(0.8) || !f.Within(1.6).meets(1.6) || f.Within(1.6).meets(1.5) {
		t.Error("times are wanted at most, rates at least")
	}
}

func TestMedian_EvenCount_IsMean(t *testing.T) {
	if m := median([]float64{4, 1, 3, 2}); m != 2.5 {
		t.Error(m)
	}
	if m := median([]float64{9, 1, 3}); m != 3 {
		t.Error(m)
	}
}

func TestNumber_VersionsOfLaunchers(t *testing.T) {
	for text, want := range map[string]string{
		"mpirun.openmpi (OpenRTE) 4.1.4\n\nReport bugs to ...":              "4.1.4",
		"HYDRA build details:\n    Version:                    4.0.2\n  Re": "4.0.2",
		"cc (Debian 14.2.0-19) 14.2.0":                                      "14.2.0-19",
		"nothing":                                                           "of unknown version",
	} {
		if got := number(text); got != want {
			t.Errorf("%q: %s", text, got)
		}
	}
}
