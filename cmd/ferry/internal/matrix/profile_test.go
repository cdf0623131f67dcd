package matrix_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/internal/libfabric/testprov"
)

// overProfiles starts ferry matrix over providers of the tests' own libfabric.
func overProfiles(t *testing.T, environment []string, args ...string) *command {
	t.Helper()
	if err := libfabric.Built(); err != nil {
		t.Skip(err)
	}
	return start(t, environment, append([]string{"matrix", "--json", "$JSON", "--set", "mtl.ofi.library=" + testprov.Library(t), "--set", "mtl.ofi.warn=off"}, args...)...)
}

func stacksOf(profiles []string) string { return "cm+ofi " + strings.Join(profiles, ",cm+ofi ") }

func TestProfiles_All_Conform(t *testing.T) {
	t.Parallel()
	r := overProfiles(t, testprov.Environment(strings.Join(testprov.Profiles, ",")), "--components", stacksOf(testprov.Profiles), "--cases", "^conform/", "--timeout", "1m").wait(0)
	for _, name := range testprov.Profiles {
		passes(t, r, "cm+ofi "+name, 70)
	}
}

func TestProfiles_MissingAbilities_Conform(t *testing.T) {
	t.Parallel()
	for _, faults := range [][]string{{"order", "tags=40"}, {"nodirected", "nodata"}, {"max", "unlimited"}, {"queues=16", "again=5"}, {"fabrics", "handlers=2"}} {
		two := []string{"cxi", "verbs;ofi_rxm"}
		r := overProfiles(t, testprov.Environment(strings.Join(two, ","), faults...), "--components", stacksOf(two), "--cases", "^conform/2/(message|memory)", "--timeout", "1m").wait(0)
		for _, name := range two {
			passes(t, r, "cm+ofi "+name, 8)
		}
	}
}

func TestMatrix_ProfileFailsAfterSelfTest_CaseIsNamed(t *testing.T) {
	t.Parallel()
	for fault, says := range map[string]string{
		"late=5": "cxi.*Input/output error",
		"flip=5": "differ|want|contents|bytes",
		"lose=5": "did not end within 3s",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			const name = "conform/2/message/every size arrives whole"
			r := overProfiles(t, testprov.Environment("cxi,efa", fault), "--components", "cm+ofi cxi,ob1+shm", "--cases", "^"+name, "--timeout", "3s").wait(1)
			passes(t, r, "ob1+shm", 2)
			status := report.Fail
			if strings.HasPrefix(fault, "lose") {
				status = report.Timeout
			}
			expect(t, r, "cm+ofi cxi", name, status, says)
		})
	}
}

func TestMatrix_LibraryCrashes_FailsItsStackOnly(t *testing.T) {
	t.Parallel()
	r := overProfiles(t, testprov.Environment("cxi", "crash"), "--components", "ob1+shm,cm+ofi*", "--cases", "^conform/2/message").wait(1)
	passes(t, r, "ob1+shm", 9)
	expect(t, r, "cm+ofi", report.OpenCase, report.Fail, "crashed the process when it was loaded")
}

func TestMatrix_LibraryOfNamedStackCrashes_Fails(t *testing.T) {
	t.Parallel()
	r := overProfiles(t, testprov.Environment("cxi", "crash"), "--components", "cm+ofi cxi", "--cases", "^conform/2/message").wait(1)
	expect(t, r, "cm+ofi cxi", report.OpenCase, report.Fail, "crashed the process when it was loaded")
}

func TestInfo_LibraryCrashes_CostsOneNetwork(t *testing.T) {
	t.Parallel()
	if err := libfabric.Built(); err != nil {
		t.Skip(err)
	}
	cmd := exec.Command(tool(t), "info", "--json", "--set", "mtl.ofi.library="+testprov.Library(t))
	cmd.Env = append(os.Environ(), testprov.Environment("cxi", "crash")...)
	out, err := cmd.Output()
	if err != nil || !strings.Contains(string(out), "crashed the process when it was loaded") || !strings.Contains(string(out), `"ob1"`) {
		t.Errorf("%v: %s", err, out)
	}
}
