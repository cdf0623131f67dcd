package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/config/tuned"
	"github.com/ferrympi/ferry/internal/cpu"
)

// ferry runs the command with a cache directory, and returns what it prints.
func ferry(t *testing.T, cache string, args ...string) (out, errs string, status int) {
	t.Helper()
	path, err := exec.LookPath("ferry")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cache, "XDG_RUNTIME_DIR="+t.TempDir(), "XDG_CONFIG_HOME="+filepath.Join(cache, "none"))
	var outs, words strings.Builder
	cmd.Stdout, cmd.Stderr = &outs, &words
	_ = cmd.Run() // the status tells
	return outs.String(), words.String(), cmd.ProcessState.ExitCode()
}

// keep writes a result that changes memory_min, which shows in explanations.
func keep(t *testing.T, cache string, kernel string) (file string) {
	t.Helper()
	dir := tuned.Dir(cache, "")
	if err := tuned.Prepare(dir); err != nil {
		t.Fatal(err)
	}
	m := tuned.ThisMachine()
	file = m.File(dir)
	if kernel != "" {
		m.Kernel = kernel
	}
	r := &tuned.Result{
		Format: tuned.Format, Machine: m, Measured: time.Now(),
		Params: []tuned.Param{{Name: "btl.shm.memory_min", Default: "8KiB", Value: "512KiB", Gain: 0.1}},
	}
	if err := r.Write(file); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestRanksAndLauncherUseTheSameTunedValues(t *testing.T) {
	cache := t.TempDir()
	file := keep(t, cache, "")
	out, errs, status := ferry(t, cache, "run", "-n", "3", "ferry", "info", "--all")
	if status != 0 || errs != "" {
		t.Fatalf("status %d: %s", status, errs)
	}
	if n := strings.Count(out, "tuned: "+file); n != 3 {
		t.Errorf("%d of 3 ranks have the file:\n%s", n, out)
	}
	if shown := strings.Count(out, "btl.shm.memory_min = 512KiB\n    tuned; default 8KiB; level tuner\n"); shown != 3 {
		t.Errorf("%d of 3 ranks show the value and its source:\n%s", shown, out)
	}
	// What sessions of ranks do with it.
	out, _, status = ferry(t, cache, "explain", "-n", "3")
	if status != 0 || !strings.Contains(out, "one copy from allocated memory: on, from 512KiB [0-2 x 0-2]") {
		t.Errorf("status %d:\n%s", status, out)
	}
	out, _, _ = ferry(t, cache, "explain", "--set", "tune.use=off")
	if !strings.Contains(out, "one copy from allocated memory: on, from 8KiB") {
		t.Errorf("without:\n%s", out)
	}
}

func TestAStaleResultIsNamedOnceAndHarmsNobody(t *testing.T) {
	cache := t.TempDir()
	file := keep(t, cache, "1.0")
	out, errs, status := ferry(t, cache, "run", "-n", "3", "echo", "went on")
	if status != 0 || strings.Count(out, "went on") != 3 {
		t.Errorf("status %d: %s", status, out)
	}
	if strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "ferry: warning: "+file+" was measured under kernel 1.0") || !strings.Contains(errs, "`ferry tune`") {
		t.Errorf("want one line of warning: %q", errs)
	}
	if _, errs, _ = ferry(t, cache, "run", "-n", "3", "everyone"); strings.Count(errs, "\n") != 1 {
		t.Errorf("ranks say it once more: %q", errs)
	}
	alone := exec.Command("everyone")
	alone.Env = append(os.Environ(), "XDG_CACHE_HOME="+cache)
	if said, err := alone.CombinedOutput(); err != nil || !strings.Contains(string(said), `level=WARN msg="what ferry tune measured is not used" err="`+file) {
		t.Errorf("a program by itself: %v, %s", err, said)
	}
	out, errs, status = ferry(t, cache, "info", "--json")
	if status != 0 || errs != "" || !strings.Contains(out, `"state": "ignored"`) || !strings.Contains(out, "was measured under kernel 1.0") {
		t.Errorf("status %d: %s%s", status, errs, out)
	}
	if _, errs, _ = ferry(t, cache, "run", "-n", "3", "-x", "FERRY_TUNE_USE=off", "true"); errs != "" {
		t.Errorf("ignored on request, and still: %s", errs)
	}
	if out, _, _ = ferry(t, cache, "tune", "--forget"); !strings.Contains(out, "removed "+file) {
		t.Errorf("forget: %s", out)
	}
}

func TestTuneOnOneProcessorSaysSo(t *testing.T) {
	// The child inherits the thread's affinity. The thread ends with the test.
	runtime.LockOSThread()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for n := 0; one.Count() == 0; n++ {
		if all.IsSet(n) {
			one.Set(n)
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	if n := cpu.Available(); n != 1 {
		t.Fatalf("%d processors in place of one", n)
	}
	_, errs, status := ferry(t, t.TempDir(), "tune")
	if status != 1 || !strings.Contains(errs, "ferry tune: two processors are needed") || strings.Count(errs, "\n") != 1 {
		t.Errorf("status %d: %q", status, errs)
	}
}
