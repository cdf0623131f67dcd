package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What people read must not disagree with what was measured.
func TestResultsAndDocsFollowFromTheJSON(t *testing.T) {
	rep, err := load("..")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("../results.md")
	if err != nil {
		t.Fatal(err)
	}
	const remedy = "go run ./bench/compare -render"
	if string(b) != rep.text("results") {
		t.Errorf("bench/results.md does not follow from results.json: %s", remedy)
	}
	b, err = os.ReadFile("../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	text, err := replaceSection(string(b), rep.text("performance"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), sectionBegin+"\n"+sectionEnd) {
		t.Skip("docs/performance.md waits for its first complete run of make compare")
	}
	if text != string(b) {
		t.Errorf("docs/performance.md does not follow from results.json: %s", remedy)
	}
}

func TestSectionIsReplacedAndTheRestStays(t *testing.T) {
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

func TestPlotOfEachGraph(t *testing.T) {
	dir := t.TempDir()
	var curves []*curve
	for _, g := range graphs {
		for _, of := range []string{"ferry", "Open MPI", "MPICH"} {
			cv := &curve{Bench: g.bench, Of: of, Setting: "as it comes"}
			for size := 1; size <= 4<<20; size *= 2 {
				cv.Points = append(cv.Points, point{Size: size, Value: float64(size) / 3})
			}
			curves = append(curves, cv)
		}
	}
	if err := plots(dir, append(curves, &curve{Bench: "latency", Of: "failed"})); err != nil {
		t.Fatal(err)
	}
	for _, g := range graphs {
		b, err := os.ReadFile(filepath.Join(dir, g.File()))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"<svg", g.Title, g.axis, ">Open MPI, as it comes<", ">64KiB<"} {
			if !strings.Contains(string(b), want) {
				t.Errorf("%s lacks %q", g.File(), want)
			}
		}
		if strings.Contains(string(b), "failed") {
			t.Errorf("%s has a curve without points", g.File())
		}
	}
}

func TestTicks(t *testing.T) {
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
