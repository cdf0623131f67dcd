package needs

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a test that keeps its outcome.
type recorder struct {
	testing.TB
	outcome string
}

func (r *recorder) Helper() {}

func (r *recorder) Skip(args ...any) { r.Skipf("%s", fmt.Sprint(args...)) }

func (r *recorder) Skipf(format string, args ...any) {
	r.outcome = "skip: " + fmt.Sprintf(format, args...)
	panic(r)
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.outcome = "fail: " + fmt.Sprintf(format, args...)
	panic(r)
}

// outcome returns how f ends a test: "pass", or skip or fail with the reason.
func outcome(t *testing.T, f func(testing.TB)) (result string) {
	r := &recorder{TB: t}
	defer func() {
		if p := recover(); p != nil && p != any(r) {
			panic(p)
		}
		result = r.outcome
	}()
	r.outcome = "pass"
	f(r)
	return
}

// without are checks for missing parts, with their reasons.
var without = map[string]struct {
	check  func(testing.TB)
	reason string
}{
	"a part":    {func(t testing.TB) { Missing(t, "no %s: install %s", "x", "y") }, "no x: install y"},
	"program":   {func(t testing.TB) { Program(t, "no-such-program", "no-such-package") }, "no no-such-program: install no-such-package (scripts/setup)"},
	"no memory": {func(t testing.TB) { room(t, "/no-such-dir", 1) }, "no shared memory: /no-such-dir: no such file or directory"},
	"name":      {func(t testing.TB) { resolves(t, "no-such-host.invalid") }, "the host's name no-such-host.invalid does not resolve: add it to /etc/hosts"},
}

func TestMissing_PartIsOptional_SkipsWithReason(t *testing.T) {
	t.Setenv("REQUIRE_ALL", "")
	for name, c := range without {
		if got := outcome(t, c.check); got != "skip: "+c.reason {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestMissing_EverythingIsRequired_FailsWithReason(t *testing.T) {
	t.Setenv("REQUIRE_ALL", "1")
	for name, c := range without {
		if got := outcome(t, c.check); got != "fail: REQUIRE_ALL=1: "+c.reason {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestProgram_IsThere_ReturnsPath(t *testing.T) {
	var path string
	if got := outcome(t, func(t testing.TB) { path = Program(t, "go", "golang") }); got != "pass" || !strings.HasSuffix(path, "/go") {
		t.Errorf("%s: %q", got, path)
	}
}

func TestRoot_AnyUser_AgreesWithTheUserID(t *testing.T) {
	t.Setenv("REQUIRE_ALL", "")
	want := "pass"
	if os.Geteuid() != 0 {
		want = "skip: only root can mount"
	}
	if got := outcome(t, func(t testing.TB) { Root(t, "mount") }); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestTime_QuickSuiteOnly_Skips(t *testing.T) {
	old := flag.Lookup("test.short").Value.String()
	t.Cleanup(func() { flag.Set("test.short", old) })
	for short, want := range map[string]string{"false": "pass", "true": "skip: a long test: make check runs it, and make race under the race detector"} {
		if err := flag.Set("test.short", short); err != nil {
			t.Fatal(err)
		}
		t.Setenv("REQUIRE_ALL", "1") // no part of the machine
		if got := outcome(t, Time); got != want {
			t.Errorf("short %s: %s", short, got)
		}
	}
}

func TestSmallTmpfs_TestEnds_IsUnmounted(t *testing.T) {
	var dir string
	t.Run("mounted", func(t *testing.T) {
		dir = SmallTmpfs(t, 64<<10)
		t.Setenv("REQUIRE_ALL", "")
		want := "skip: " + dir + " has 0 MiB free, and the test takes 1: enlarge it (docker: --shm-size)"
		if got := outcome(t, func(t testing.TB) { room(t, dir, 1<<20) }); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if got := outcome(t, func(t testing.TB) { room(t, dir, 1<<10) }); got != "pass" {
			t.Error(got)
		}
		if err := os.WriteFile(dir+"/large", make([]byte, 128<<10), 0o600); err == nil {
			t.Error("128 KiB have room in 64")
		}
	})
	if dir == "" {
		t.Skip("no tmpfs can be mounted")
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", dir, err)
	}
}
