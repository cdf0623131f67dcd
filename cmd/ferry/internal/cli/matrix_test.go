package cli_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
)

// qualify runs `ferry matrix` with JSON on its standard output.
func qualify(t *testing.T, args ...string) *report.Report {
	t.Helper()
	cmd := exec.Command("ferry", append([]string{"matrix", "--json", "-"}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	r, err := report.ReadJSON(strings.NewReader(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Users copy the command from the page.
func TestMatrix_CommandOfRow_RunsThatCellOnly(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", dir)
	r := qualify(t, "--components", "ob1+shm", "--ranks", "3", "--set", "btl.shm.eager_limit=2KiB", "--timeout", "30s",
		"--cases", `^(btltest/CapsArePlausibleAndFixed|pmltest/lazy/PlanesNeverMatchEachOther|conform/3/group/empty|bench/rate)$`)
	var cases []string
	for _, row := range r.Rows {
		cases = append(cases, row.Case)
		if !strings.Contains(row.Command, " --set btl.shm.eager_limit=2KiB") {
			t.Errorf("%s: %s: the parameter is missing", row.Case, row.Command)
		}
		if strings.HasPrefix(row.Case, "bench/") {
			out, err := exec.Command("sh", "-c", row.Command+" --format json").Output()
			var figure struct{ Bench string }
			first, _, _ := strings.Cut(string(out), "\n")
			if err != nil || json.Unmarshal([]byte(first), &figure) != nil || figure.Bench != "mbw_mr" {
				t.Errorf("%s: %v: %s", row.Command, err, out)
			}
			continue
		}
		file := filepath.Join(dir, "again.json")
		if out, err := exec.Command("sh", "-c", row.Command+" --json "+file).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", row.Command, err, out)
			continue
		}
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		again, err := report.ReadJSON(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		// A stack is opened before anything else.
		got := again.Rows[len(again.Rows)-1]
		if n := len(again.Rows); n > 2 || n == 2 && again.Rows[0].Case != report.OpenCase ||
			got.Stack != row.Stack || got.Case != row.Case || got.Status != report.Pass || got.Command != row.Command || got.RankCount != row.RankCount {
			t.Errorf("%s: %+v", row.Command, again.Rows)
		}
	}
	want := []string{"open", "btltest/CapsArePlausibleAndFixed", "pmltest/lazy/PlanesNeverMatchEachOther", "conform/3/group/empty", "bench/rate"}
	if !slices.Equal(cases, want) {
		t.Errorf("cases %q, want %q", cases, want)
	}
}
