package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// grownRows are those of `ferry bench grow --add 8 --format json`.
const grownRows = `{"bench":"grow/total","size":8,"ranks":2,"unit":"ms","avg":40,"raw_hop_ns":0}
{"bench":"grow/calls","size":8,"ranks":2,"unit":"ms","avg":10,"raw_hop_ns":0}
`

func TestParseSamples_RowsOfOneBenchmark_TheFiguresCounts(t *testing.T) {
	for name, want := range map[string]float64{
		"grow: add 8 processes to 2":                            40,
		"grow: add 8 processes to 2, inside calls with --async": 10,
	} {
		list, err := parseSamples(grownRows, fig(t, name))
		if err != nil || len(list) != 1 || list[0].Value != want {
			t.Errorf("%s: %+v, error %v", name, list, err)
		}
	}
	onlyCalls := grownRows[strings.Index(grownRows, "\n"):]
	if list, err := parseSamples(onlyCalls, fig(t, "grow: add 8 processes to 2")); err == nil {
		t.Errorf("without the figure's row: %+v", list)
	}
}

func TestSeries_SidesPrintRowsOfDifferentBenchmarks_AreMeasured(t *testing.T) {
	needTwoProcessors(t)
	shrunk := strings.ReplaceAll(strings.ReplaceAll(grownRows, "grow", "shrink"), "40", "10")
	hello := `{"bench":"hello","size":0,"ranks":8,"unit":"ms","avg":80,"raw_hop_ns":26}`
	args := world(t, "case $2 in shrink) echo '"+shrunk+"';; grow) echo '"+grownRows+"';; hello) echo '"+hello+"';; esac", "exit 1")
	args[len(args)-1] = "^shrink: |^grow: add 8 .* as many ranks"
	if err := run(t.Context(), args, t.Output()); err != nil {
		t.Fatal(err)
	}
	_, md := results(t, args)
	for _, want := range []string{
		"| shrink: remove 8 of 10 processes, to adding them | **0.25** met | 10.0 / 40.0 ms | <= 0.30 |",
		"| grow: add 8 processes to 2, to a job of as many ranks | **0.50** met | 40.0 / 80.0 ms | <= 1.50 |",
	} {
		if !strings.Contains(md, want) {
			t.Errorf("the results lack %q:\n%s", want, md)
		}
	}
}

// A peer that hangs costs the time limit of a sample each time.
func TestSeries_EverySampleFails_EndsAfterAsManyAsWanted(t *testing.T) {
	needTwoProcessors(t)
	log := filepath.Join(t.TempDir(), "log")
	args := world(t, "echo '"+recorded+"'", "echo failed >>"+log+"; exit 1")
	if err := run(t.Context(), args, t.Output()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(b), "failed"); n != 2 {
		t.Errorf("%d samples, want 2", n)
	}
}

// The first ranks and the added ones share the cores.
func TestLaunch_ProcessesAreAdded_RanksAreNotBoundWhereCoresAreShared(t *testing.T) {
	f := fig(t, "grow: add 8 processes to 2")
	f.addedProcesses = 1 << 20
	p := peer{Launcher: "mpirun", BoundArgs: []string{"bound"}, OversubscribedArgs: []string{"oversubscribed"}}
	if args := p.launch(f); !slices.Contains(args, "oversubscribed") || !slices.Equal(args[len(args)-2:], []string{"-n", "2"}) {
		t.Errorf("%q", args)
	}
}
