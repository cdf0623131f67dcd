package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPages_FollowFromJSON(t *testing.T) {
	all, err := load("../results")
	if err != nil {
		t.Fatal(err)
	}
	const remedy = "go run ./bench/compare -render"
	for _, rep := range all {
		b, err := os.ReadFile("../results/" + rep.Key() + ".md")
		if err != nil {
			t.Fatal(err)
		}
		if string(b) != rep.text("results") {
			t.Errorf("bench/results/%s.md does not follow from the file with .json: %s", rep.Key(), remedy)
		}
	}
	b, err := os.ReadFile("../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	text, err := replaceSection(string(b), performance(all))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), sectionBegin+"\n"+sectionEnd) {
		t.Skip("docs/performance.md waits for its first complete run of make compare")
	}
	if text != string(b) {
		t.Errorf("docs/performance.md does not follow from bench/results: %s", remedy)
	}
}

func TestDocument_MachineMeasuredAgain_ReplacesOnlyItsSection(t *testing.T) {
	out, docs := t.TempDir(), t.TempDir()
	page := filepath.Join(docs, "performance.md")
	if err := os.WriteFile(page, []byte("before\n"+sectionBegin+"\nold\n"+sectionEnd+"\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, a := range []machineInfo{
		{ProcessorModel: "Intel(R) Xeon(R) CPU @ 2.70GHz", ProcessorCount: 2, System: "Debian GNU/Linux 12 (bookworm)", Release: "debian 12", Date: "first"},
		{ProcessorModel: "AMD EPYC", ProcessorCount: 2, System: "Debian GNU/Linux 12 (bookworm)", Release: "debian 12", Date: "second"},
		{ProcessorModel: "AMD EPYC", ProcessorCount: 4, System: "Debian GNU/Linux 12 (bookworm)", Release: "debian 12", Date: "third"},
		{ProcessorModel: "AMD EPYC", ProcessorCount: 2, System: "Debian GNU/Linux 13 (trixie)", Release: "debian 13", Date: "fourth"},
		{ProcessorModel: "AMD EPYC", ProcessorCount: 2, System: "Debian GNU/Linux 12 (bookworm)", Release: "debian 12", Date: "fifth"},
	} {
		cv := &curve{BenchName: "latency", ProgramTitle: "ferry", Points: []point{{MessageBytes: 8, Value: 1}, {MessageBytes: 16, Value: 2}}}
		if err := write(out, &report{machineInfo: a, Curves: []*curve{cv}}); err != nil {
			t.Fatal(err)
		}
		all, err := load(out)
		if err == nil {
			err = document(docs, all)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"### Intel(R) Xeon(R) CPU @ 2.70GHz, 2 processors", "### AMD EPYC, 2 processors, Debian GNU/Linux 12", "### AMD EPYC, 4 processors", "### AMD EPYC, 2 processors, Debian GNU/Linux 13",
		"\nfirst,", "\nthird,", "\nfourth,", "\nfifth,", "(plots/intel-r-xeon-r-cpu-2.70ghz-x2-debian-12/latency.svg)", "before\n", "\nafter\n",
	} {
		if strings.Count(string(b), want) != 1 {
			t.Errorf("%d times %q in\n%s", strings.Count(string(b), want), want, b)
		}
	}
	if strings.Contains(string(b), "\nsecond,") {
		t.Error("a machine has its old results beside its new ones")
	}
	for _, key := range []string{"amd-epyc-x2-debian-12", "amd-epyc-x2-debian-13", "amd-epyc-x4-debian-12", "intel-r-xeon-r-cpu-2.70ghz-x2-debian-12"} {
		if _, err := os.Stat(filepath.Join(docs, "plots", key, "latency.svg")); err != nil {
			t.Error(err)
		}
	}
}

func TestParseReport_RemovedFigure_KeepsItsRow(t *testing.T) {
	rep, err := parseReport([]byte(`{"rows":[{"figure":"bandwidth by pigeon","unit":"GB/s","wanted":1.5,"results":[{"peer":"MPICH","setting":"as it comes","default":true,"ours":3,"peers":2,"ratio":1.5}]}]}`))
	if err != nil || len(rep.Rows) != 1 || rep.Rows[0].DefaultStanding == nil || !rep.Rows[0].DefaultStanding.IsMet {
		t.Fatalf("%+v, error %v", rep, err)
	}
	if text := rep.text("results"); !strings.Contains(text, "| bandwidth by pigeon | 3.00 / 2.00 GB/s (MPICH) | **1.50** met |") {
		t.Error(text)
	}
}

func TestReplaceSection_KeepsRest(t *testing.T) {
	text, err := replaceSection("before\n"+sectionBegin+"\nold\n"+sectionEnd+"\nafter\n", "new\n")
	if want := "before\n" + sectionBegin + "\nnew\n" + sectionEnd + "\nafter\n"; err != nil || text != want {
		t.Errorf("%q, error %v", text, err)
	}
	for _, bad := range []string{"", sectionBegin, sectionEnd + sectionBegin} {
		if _, err := replaceSection(bad, ""); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestPlots_DrawEachGraph(t *testing.T) {
	dir := t.TempDir()
	var curves []*curve
	for _, g := range graphs {
		for _, of := range []string{"ferry", "Open MPI", "MPICH"} {
			cv := &curve{BenchName: g.benchName, ProgramTitle: of, Setting: "as it comes"}
			for size := 1; size <= 4<<20; size *= 2 {
				cv.Points = append(cv.Points, point{MessageBytes: size, Value: float64(size) / 3})
			}
			curves = append(curves, cv)
		}
	}
	if err := plots(dir, append(curves, &curve{BenchName: "latency", ProgramTitle: "failed"})); err != nil {
		t.Fatal(err)
	}
	for _, g := range graphs {
		b, err := os.ReadFile(filepath.Join(dir, g.File()))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"<svg", g.Title, g.axisTitle, ">Open MPI, as it comes<", ">64KiB<"} {
			if !strings.Contains(string(b), want) {
				t.Errorf("%s lacks %q", g.File(), want)
			}
		}
		if strings.Contains(string(b), "failed") {
			t.Errorf("%s has a curve without points", g.File())
		}
	}
}

func TestHeadlines_AreFigures(t *testing.T) {
	known := map[string]bool{}
	for _, f := range figures() {
		known[f.Name] = true
	}
	for _, name := range headlines {
		if !known[name] {
			t.Errorf("headline %q does not name a figure", name)
		}
	}
}

func TestTicks_Labels(t *testing.T) {
	var names []string
	for _, tick := range sizeTicks(1, 8<<10) {
		names = append(names, tick.Label)
	}
	if got := strings.Join(names, " "); got != "1  4  16  64  256  1KiB  4KiB " {
		t.Errorf("sizes %q", got)
	}
	names = nil
	for _, tick := range decimalTicks(0.05, 2000) {
		names = append(names, tick.Label)
	}
	if got := strings.Join(names, " "); got != "0.05 0.1 0.2 0.5 1 2 5 10 20 50 100 200 500 1000 2000" {
		t.Errorf("values %q", got)
	}
}
