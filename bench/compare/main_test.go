package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/ferrytest"
)

func TestMain(m *testing.M) { ferrytest.Main(m, nil) }

// recorded is a row as `ferry bench latency --format json` prints it.
const recorded = `{"bench":"latency","size":8,"ranks":2,"unit":"us","avg":0.21,"min":0.2,"p50":0.21,"p99":0.3,"raw_hop_ns":26.5}` + "\n"

// world creates a folder with a ferry and one peer as shell scripts, which print invented figures.
func world(t *testing.T, ferry, launcher string) []string {
	t.Helper()
	dir := t.TempDir()
	script := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	peers, err := json.Marshal([]peer{{
		Name: "fake", Title: "Fake MPI", Launcher: script("launch", "[ \"$1\" = --version ] && echo Fake 1.2.3 && exit\n"+launcher),
		Compiler: script("cc", "exit 0\n"), Settings: []setting{{Title: "as it comes", IsDefault: true}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"peers.json": peers, "peer.c": nil} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	script("instructions", "echo '"+instructionsPrinted+"'\n")
	script("ferry", "[ \"$1\" = --version ] && echo ferry version 9.9 && exit\n"+ferry)
	return []string{
		"-ferry", filepath.Join(dir, "ferry"), "-peers", dir, "-build", filepath.Join(dir, "build"),
		"-out", filepath.Join(dir, "out"), "-instructions", filepath.Join(dir, "instructions"), "-pairs", "2", "-rows", "^8 B latency$",
	}
}

func results(t *testing.T, args []string) (rep struct {
	Rows []struct {
		Results     []result
		Default     *struct{ Ratio, Wanted float64 }
		NotMeasured string `json:"not_measured"`
	}
}, markdown string) {
	t.Helper()
	b, err := os.ReadFile(resultFile(t, args[7], ".json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &rep); err != nil {
		t.Fatal(err)
	}
	b, err = os.ReadFile(resultFile(t, args[7], ".md"))
	if err != nil {
		t.Fatal(err)
	}
	return rep, string(b)
}

// resultFile is the one file of the machine that was measured.
func resultFile(t *testing.T, dir, ext string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*"+ext))
	if err != nil || len(paths) != 1 {
		t.Fatalf("files %q, error %v", paths, err)
	}
	return paths[0]
}

func needTwoProcessors(t *testing.T) {
	t.Helper()
	if _, err := newGauge(); err != nil {
		t.Skip(err)
	}
}

func TestCompare_SamplesAlternate(t *testing.T) {
	needTwoProcessors(t)
	log := filepath.Join(t.TempDir(), "log")
	args := world(t, "echo ours >>"+log+"; echo '"+recorded+"'",
		"echo theirs >>"+log+"; echo '"+strings.Replace(recorded, "0.21", "0.42", 1)+"'")
	if err := run(t.Context(), args, t.Output()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	order := strings.ReplaceAll(string(b), "ours\ntheirs\n", "")
	if order != "" || strings.Count(string(b), "ours") < 2 {
		t.Errorf("order of samples: %q", b)
	}
	rep, md := results(t, args)
	if len(rep.Rows) != 1 || rep.Rows[0].Default == nil || rep.Rows[0].Default.Ratio != 0.5 || rep.Rows[0].Default.Wanted != 0.7 {
		t.Errorf("results %+v", rep)
	}
	for _, want := range []string{"| 8 B latency | 0.210 / 0.420 us (Fake MPI) | **0.50** met | ", "- ferry 9.9", "- Fake MPI 1.2.3"} {
		if !strings.Contains(md, want) {
			t.Errorf("the results lack %q:\n%s", want, md)
		}
	}
}

// An earlier ferry needs no peer, and leaves the results of peers.
func TestCompare_EarlierFerry_Alternates(t *testing.T) {
	needTwoProcessors(t)
	log := filepath.Join(t.TempDir(), "log")
	args := world(t, "echo ${0##*/} >>"+log+"; echo '"+recorded+"'", "exit 1")
	args = append(args, "-before", args[1], "-peers", filepath.Join(t.TempDir(), "none"))
	if err := run(t.Context(), args, t.Output()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if strings.ReplaceAll(string(b), "ferry\nbefore\n", "") != "" || len(b) == 0 {
		t.Errorf("order of samples: %q", b)
	}
	_, md := results(t, args)
	for _, want := range []string{"| 8 B latency | **1.00** met | 0.210 / 0.210 us | <= 1.02 |", "- ferry before 9.9"} {
		if !strings.Contains(md, want) {
			t.Errorf("the results lack %q:\n%s", want, md)
		}
	}
	o, err := parse([]string{"-before", "x"}, t.Output())
	if err != nil || o.resultsDir != "bin/before" || o.hasAllRows {
		t.Errorf("%+v, error %v", o, err)
	}
}

// One crash must neither end a comparison of a quarter of an hour nor vanish.
func TestCompare_SampleFails_IsCounted(t *testing.T) {
	needTwoProcessors(t)
	once := filepath.Join(t.TempDir(), "once")
	args := world(t, "echo '"+recorded+"'", "[ -e "+once+" ] || { touch "+once+"; echo broken >&2; exit 3; }\necho '"+recorded+"'")
	var stderr bytes.Buffer
	if err := run(t.Context(), args, &stderr); err != nil {
		t.Fatal(err)
	}
	rep, _ := results(t, args)
	if r := rep.Rows[0].Results; len(r) != 1 || r[0].FailedPairs != 1 || len(r[0].Pairs) < 2 {
		t.Errorf("results %+v", rep)
	}
	if !strings.Contains(stderr.String(), "broken") {
		t.Errorf("what the peer said is lost: %s", stderr.String())
	}
}

func TestCompare_FigureAlwaysFails_HasReason(t *testing.T) {
	needTwoProcessors(t)
	args := world(t, "echo '"+recorded+"'", "echo no such network >&2; exit 1\n")
	if err := run(t.Context(), args, t.Output()); err != nil {
		t.Fatal(err)
	}
	rep, md := results(t, args)
	if w := rep.Rows[0]; w.Default != nil || !strings.Contains(w.NotMeasured, "no such network") {
		t.Errorf("results %+v", rep)
	}
	if !strings.Contains(md, "| 8 B latency | not measured: ") {
		t.Error(md)
	}
}

// Processes may leave their launcher's group and session; a peer that hangs must
// not go on using the processors while others are measured.
func TestCommand_Timeout_LeavesNoProcess(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	r := &options{sampleTimeout: time.Minute}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, _, err := r.command(ctx, []string{"sh", "-c", "trap '' TERM; setsid sh -c 'echo $$ >" + file + ".new; mv " + file + ".new " + file + "; exec sleep 600' & wait; wait"})
		done <- err
	}()
	var pid int
	for deadline := time.Now().Add(20 * time.Second); pid == 0; {
		if b, err := os.ReadFile(file); err == nil {
			if _, err := fmt.Sscan(string(b), &pid); err != nil {
				t.Fatal(err)
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("the child did not start")
		}
	}
	cancel()
	if err := <-done; err == nil {
		t.Fatal("no error")
	}
	for deadline := time.Now().Add(20 * time.Second); alive(pid); {
		if time.Now().After(deadline) {
			t.Fatal("the child outlives its sample")
		}
	}
}

func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(b, []byte(") Z ")) && !bytes.Contains(b, []byte(") X "))
}

func TestParse_InvalidCommandLine_IsRefused(t *testing.T) {
	for _, args := range [][]string{
		{"-pairs", "0"}, {"-rows", "("}, {"-rows", "no such figure"}, {"more"}, {"-limit", "0s"},
		{"-ferry", filepath.Join(t.TempDir(), "none")},
	} {
		if err := run(t.Context(), args, t.Output()); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}

// The real thing, where `make compare` has installed the peers.
func TestCompare_RealPeers_QuickRow(t *testing.T) {
	needTwoProcessors(t)
	for _, program := range []string{"mpicc.openmpi", "mpirun.openmpi", "mpicc.mpich", "mpiexec.mpich"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed; make compare installs it", program)
		}
	}
	for _, compiler := range []string{"mpicc.openmpi", "mpicc.mpich"} { // Their requirements may be missing.
		c := exec.CommandContext(t.Context(), compiler, "-E", "-x", "c", "-")
		c.Stdin = strings.NewReader("#include <mpi.h>\n")
		if err := c.Run(); err != nil {
			t.Skipf("%s finds no mpi.h; make compare installs it", compiler)
		}
	}
	ferry, err := exec.LookPath("ferry")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	args := []string{"-ferry", ferry, "-peers", "../peers", "-build", filepath.Join(dir, "build"), "-out", filepath.Join(dir, "out"), "-instructions", ferry}
	args = append(args, "-rows", "^(8 B latency|session .*, 2 ranks)$", "-quick")
	if err := run(t.Context(), args, t.Output()); err != nil {
		t.Fatal(err)
	}
	rep, _ := results(t, args)
	if len(rep.Rows) != 2 {
		t.Fatalf("%d figures, want 2", len(rep.Rows))
	}
	for _, w := range rep.Rows {
		if w.NotMeasured != "" || len(w.Results) != 2 || w.Default == nil || w.Default.Ratio <= 0 {
			t.Errorf("figure %+v", w)
		}
		for _, r := range w.Results {
			if len(r.Pairs) < 2 {
				t.Errorf("%s: %d pairs", r.Peer, len(r.Pairs))
			}
		}
	}
}

// instructionsPrinted is the output of bench/instructions.
const instructionsPrinted = `{"pml":"ob1","policy":"agree","instructions":600}{"pml":"ob1","policy":"gather","instructions":603}{"pml":"ob1","policy":"lazy","instructions":660}
{"pml":"cm","policy":"agree","instructions":900}{"pml":"cm","policy":"gather","instructions":900}{"pml":"cm","policy":"lazy","instructions":900}`
