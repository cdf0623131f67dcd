package matrix_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/internal/needs"
)

func TestMatrix_WithoutLibfabric_RunsOtherStacks(t *testing.T) {
	t.Parallel()
	r := start(t, []string{"FERRY_MTL_OFI_LIBRARY=/nonexistent.so"},
		"matrix", "--components", "ob1+shm,cm+ofi*", "--cases", "^btltest/Caps", "--json", "$JSON").wait(0)
	why := "/nonexistent.so"
	if err := libfabric.Built(); err != nil { // No library is loaded then.
		why = err.Error()
	}
	expect(t, r, "cm+ofi", report.OpenCase, report.Unavailable, why)
	passes(t, r, "ob1+shm", 2)
}

// The providers of a missing library are unknown, so that the name is not reported as a mistake.
func TestMatrix_NamedStackWithoutLibrary_Fails(t *testing.T) {
	t.Parallel()
	const stack = "cm+ofi tcp;ofi_rxm"
	r := start(t, nil, "matrix", "--components", stack, "--set", "mtl.ofi.library=/nonexistent.so", "--json", "$JSON").wait(1)
	expect(t, r, stack, report.OpenCase, report.Fail, "it was asked for by name, and is unavailable: ")
}

// --components and --require name stacks. A stack that matches a pattern, and one that is refused for a defect,
// are not failures.
func TestMatrix_NamedStackIsMissing_Fails(t *testing.T) {
	needLibfabric(t)
	t.Parallel()
	const cxi, shm = "cm+ofi cxi", "ob1+shm"
	for name, c := range map[string]struct {
		args   []string
		exit   int
		status report.Status
		says   string
	}{
		"by components": {[]string{"--components", shm + "," + cxi}, 1, report.Fail, "it was asked for by name, and is unavailable: fi_getinfo"},
		"by a pattern":  {[]string{"--components", shm + ",cm+ofi cx*"}, 0, report.Unavailable, "fi_getinfo"},
		"by require":    {[]string{"--components", shm + ",cm+ofi c*", "--require", cxi}, 1, report.Fail, "it was asked for by name, and is unavailable: fi_getinfo"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, nil, append([]string{"matrix", "--cases", "^btltest/Caps", "--json", "$JSON"}, c.args...)...).wait(c.exit)
			expect(t, r, cxi, report.OpenCase, c.status, c.says)
			passes(t, r, shm, 2)
		})
	}
}

func TestMatrix_LibraryHangsOrCrashes_CostsItsProviderOnly(t *testing.T) {
	needs.Time(t)
	needLibfabric(t)
	t.Parallel()
	lib := filepath.Join(t.TempDir(), "libfault.so")
	text, err := exec.Command("gcc", "-shared", "-fPIC", "-o", lib, "../../../../mtl/ofi/testdata/fault.c", "-ldl").CombinedOutput()
	if err != nil {
		needs.Missing(t, "gcc and libfabric-dev are needed: %v: %s", err, text)
	}
	for _, f := range []struct {
		fault string
		open  report.Status
		says  string
	}{
		{"hang_tcp", report.Timeout, "does not return within "},
		{"crash_tcp", report.Fail, segv},
	} {
		t.Run(f.fault, func(t *testing.T) {
			t.Parallel()
			const broken, sound = "cm+ofi tcp;ofi_rxm", "cm+ofi net;ofi_rxm"
			// A busy machine may exceed a low limit with the provider that works.
			for limit := 3 * time.Second; ; limit *= 4 {
				c := start(t, []string{"FERRY_MTL_OFI_LIBRARY=" + lib, fmt.Sprint("FERRY_MTL_OFI_SELFTEST_TIMEOUT=", limit), "FABRIC_FAULT=" + f.fault},
					"matrix", "--components", "ob1+shm,"+broken+","+sound, "--cases", "^(btl|mtl)test/Caps", "--json", "$JSON")
				r := c.wait(1)
				if limit < 30*time.Second && hangsBeside(r, broken) {
					t.Logf("a limit of %v is too low: %+v", limit, r.Rows)
					continue
				}
				if says := c.stderr.String(); f.open == report.Timeout && !strings.Contains(says, "surveying transports and providers") {
					t.Errorf("it does not show that it lives: %s", says)
				}
				expect(t, r, broken, report.OpenCase, f.open, f.says)
				passes(t, r, sound, 2)
				passes(t, r, "ob1+shm", 2)
				return
			}
		})
	}
}

// hangsBeside reports whether a call of the library hangs in another stack than the broken one.
func hangsBeside(r *report.Report, broken string) bool {
	return r != nil && slices.ContainsFunc(r.Rows, func(x report.Row) bool {
		return x.Stack != broken && x.Status != report.Pass && strings.Contains(x.Reason, "does not return")
	})
}

func TestMatrix_Interrupt_WritesPartialReportAtOnce(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "matrix", "--components", "ob1+hang,ob1+shm", "--cases", "^btltest/(Caps|Frames)", "--timeout", "10m", "--json", "$JSON")
	c.until("ob1+hang  btltest/CapsArePlausibleAndFixed") // the next case hangs
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	r := c.wait(130)
	expect(t, r, "ob1+hang", "btltest/CapsArePlausibleAndFixed", report.Pass, "")
	expect(t, r, "ob1+hang", "btltest/FramesOfEverySizeArriveWholeAndInOrder", report.Skip, "interrupt")
	if !strings.Contains(r.EndReason, "interrupt") {
		t.Errorf("partial: %q", r.EndReason)
	}
}

func TestReport_UnwritableFile_FailsBeforeRun(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"--json", "--junit", "--html"} {
		path := filepath.Join(t.TempDir(), "none", "report")
		c := start(t, nil, "matrix", "--components", "ob1+hang", flag, path)
		c.wait(2)
		if !strings.Contains(c.stderr.String(), flag) || !strings.Contains(c.stderr.String(), path) || c.out.Len() > 0 {
			t.Errorf("%s: %s%s", flag, &c.out, &c.stderr)
		}
		if _, err := os.Stat(filepath.Dir(path)); err == nil {
			t.Errorf("%s was made", filepath.Dir(path))
		}
	}
}
