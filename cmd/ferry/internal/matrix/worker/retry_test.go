package worker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/plan"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
)

// runWithLoad runs the cases at a load. It returns the report and a function with the number of tries of a case.
func runWithLoad(t *testing.T, load float64, exclusions string, cases ...string) (*report.Report, func(name string) int) {
	t.Helper()
	tries := t.TempDir()
	t.Setenv(envTries, tries)
	r := newBad(t, 0, cases)
	r.CaseLimit, r.LoadPerProcessor = 5*tick, func() float64 { return load }
	if exclusions != "" {
		var err error
		if r.Exclude, err = plan.ParseExclusions("x.yaml", []byte(exclusions)); err != nil {
			t.Fatal(err)
		}
	}
	return r.run(t.Context()), func(name string) int {
		text, err := os.ReadFile(filepath.Join(tries, name))
		if err != nil {
			t.Error(err)
		}
		return len(text)
	}
}

func TestTimeout_MachineIsBusy_IsTriedOnceMoreAndMarked(t *testing.T) {
	got, tries := runWithLoad(t, 2.5, "", "pass1", "first", "always", "pass2")
	for name, want := range map[string]report.Status{"pass1": report.Pass, "first": report.Pass, "always": report.Timeout, "pass2": report.Pass} {
		if s, why := outcome(got, "stack0", name); s != want {
			t.Errorf("%s: %s: %s, want %s", name, s, why, want)
		}
	}
	if n := tries("always"); n != 2 {
		t.Errorf("%d tries of a case that never ends, want 2", n)
	}
	notes := strings.Join(got.Retries(), "\n")
	const why = "in the second try, because the first one did not end within 500ms at a load of 2.5 per processor"
	if want := "stack0 kit/first: pass " + why + "\nstack0 kit/always: timeout " + why; notes != want {
		t.Errorf("the marks are\n%s\nwant\n%s", notes, want)
	}
}

func TestTimeout_MachineIsIdleOrCaseIsExcluded_IsNotRepeated(t *testing.T) {
	for exclusions, load := range map[string]float64{"": 2, "- {stack: stack0, case: kit/always, reason: known}": 9} {
		got, tries := runWithLoad(t, load, exclusions, "always", "pass")
		if n := tries("always"); n != 1 || len(got.Retries()) > 0 {
			t.Errorf("load %g, exclusions %q: %d tries, marks %q", load, exclusions, n, got.Retries())
		}
		if s, why := outcome(got, "stack0", "pass"); s != report.Pass {
			t.Errorf("behind: %s: %s", s, why)
		}
	}
}
