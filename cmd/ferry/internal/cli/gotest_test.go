package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// docs/observability.md recommends this. A failed test of one rank must be reported.
func TestGoTest_OnRanks_ReportsFailure(t *testing.T) {
	for _, wrong := range []string{"", "1"} {
		cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-v", "-exec", "ferry run -n 3 --tag-output", "./testdata/ranks")
		cmd.Env = append(os.Environ(), "RANKS_WRONG="+wrong, "GOFLAGS=-mod=readonly")
		b, err := cmd.CombinedOutput()
		out := string(b)
		if (err != nil) != (wrong != "") {
			t.Errorf("RANKS_WRONG=%q: %v\n%s", wrong, err, out)
		}
		if wrong != "" {
			if !strings.Contains(out, "[1]     ranks_test.go") || !strings.Contains(out, "rank 1 is not content") {
				t.Errorf("it does not say which rank failed:\n%s", out)
			}
			continue
		}
		for rank := range 3 {
			if line := fmt.Sprintf("[%d] --- PASS: TestSum", rank); !strings.Contains(out, line) {
				t.Errorf("no line %q in\n%s", line, out)
			}
		}
		if !strings.Contains(out, "the sum of 3 ranks is 6") || strings.Contains(out, "(cached)") {
			t.Error(out)
		}
	}
}
