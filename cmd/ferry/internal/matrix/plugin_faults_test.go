package matrix_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
)

func TestMatrix_PluginFaults_AreFoundAndNamed(t *testing.T) {
	t.Parallel()
	const frames = "btltest/FramesOfEverySizeArriveWholeAndInOrder"
	dir := t.TempDir()
	binary, file := filepath.Join(dir, "btl-fault"), filepath.Join(dir, "config.yaml")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./testdata/btlfault").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	faults := []fault{
		{"drop", frames, report.Fail, "is missing"},
		{"duplicate", frames, report.Fail, "arrived twice"},
		{"corrupt", frames, report.Fail, "got "},
		{"hang", frames, report.Fail, "health_timeout"},
		{"hang_open", report.OpenCase, report.Fail, "start_timeout"},
		{"crash", frames, report.Fail, "the plugin exited"},
	}
	list, config := "ob1+p_sound", "plugins:\n"
	for _, f := range append([]fault{{stack: "sound"}}, faults...) {
		config += fmt.Sprintf("  - {kind: btl, name: p_%s, command: [%q, %s]}\n", f.stack, binary, f.stack)
		if f.stack != "sound" {
			list += ",ob1+p_" + f.stack
		}
	}
	config += "params:\n  btl.p_hang.health_timeout: 1s\n  btl.p_hang_open.start_timeout: 1s\n"
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, []string{"FERRY_CONFIG=" + file}, "matrix", "--components", list, "--cases", "^"+frames+"$", "--timeout", "10s", "--json", "$JSON").wait(1)
	for _, f := range faults {
		expect(t, r, "ob1+p_"+f.stack, f.found, f.status, f.says)
	}
	passes(t, r, "ob1+p_sound", 1)
}

// Such a transport is opened with one rank, and runs the cases for one rank.
func TestMatrix_TransportForOneProcess_RunsAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	binary, file := filepath.Join(dir, "btl-fault"), filepath.Join(dir, "config.yaml")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./testdata/btlfault").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text := fmt.Sprintf("plugins:\n  - {kind: btl, name: p_alone, command: [%q, alone]}\n", binary)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const stack = "ob1+p_alone"
	r := start(t, []string{"FERRY_CONFIG=" + file}, "matrix", "--components", stack, "--cases", "^(btltest/[A-F]|pmltest|conform/./message)", "--timeout", "1m", "--json", "$JSON").wait(0)
	families := map[string]int{}
	for _, row := range r.Rows {
		family, _, _ := strings.Cut(row.Case, "/")
		families[family]++
	}
	if families["btltest"] == 0 || families["conform"] == 0 || families["pmltest"] > 0 {
		t.Errorf("cases: %v", families)
	}
	passes(t, r, stack, 5)
	if s := r.Stacks[0]; !s.ReachesOnlySelf || s.Device != "nothing" {
		t.Errorf("%+v: its messages go by another transport", s)
	}
}
