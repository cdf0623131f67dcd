package pmixc

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/internal/pmixc/pmixtest"
)

// library returns libpmix, or skips the test.
func library(t *testing.T) *Library {
	t.Helper()
	l, err := Load(Soname)
	if err != nil {
		needs.Missing(t, "%v: install libpmix2, and build with cgo", err)
	}
	return l
}

func TestLoad_MissingLibrary_IsNamed(t *testing.T) {
	for _, path := range []string{"libnosuchpmix.so.2", "/nonexistent/libpmix.so.2", "libc.so.6"} {
		_, err := Load(path)
		if errors.Is(err, ErrNotBuilt) {
			t.Skip(err)
		}
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestLoad_OtherLibrary_IsClosed(t *testing.T) {
	const other = "libanl.so.1"
	mapped := func() bool {
		text, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(text), other)
	}
	if mapped() {
		t.Skip("this program has it for another reason")
	}
	_, err := Load(other)
	if err == nil || !strings.Contains(err.Error(), "it has no PMIx_") {
		t.Skip(err)
	}
	if mapped() {
		t.Errorf("%s stays loaded", other)
	}
}

func TestParseVersion_TextsOfLibraries(t *testing.T) {
	for text, want := range map[string]string{
		"OpenPMIx 4.2.2rc2 (PMIx Standard: 4.2, Stable ABI: 0.0, Provisional ABI: 0.0)": "4.2.2",
		"OpenPMIx 4.1.2, repo rev: v4.1.2 (PMIx Standard: 4.1)":                         "4.1.2",
		"OpenPMIx 5.0.8 (PMIx Standard: 5.1, Stable ABI: 5.0, Provisional ABI: 5.0)":    "5.0.8",
		"OpenPMIx 6.1.0a1, repo rev: gitclone":                                          "6.1.0",
		"3.2.3":                                                                         "3.2.3",
		"v4.1":                                                                          "4.1.0",
		"":                                                                              "",
		"PMIx":                                                                          "",
		"OpenPMIx version.info":                                                         "",
		"OpenPMIx 99999999999999999999.1":                                               "",
	} {
		v, ok := parseVersion(text)
		if got := v.String(); ok != (want != "") || ok && got != want {
			t.Errorf("%q: %v, %t, want %q", text, v, ok, want)
		}
	}
}

func TestVersion_After(t *testing.T) {
	for v, old := range map[Version]bool{{4, 0, 9}: true, {4, 1, 0}: false, {4, 1, 2}: false, {5, 0, 0}: false, {3, 99, 9}: true} {
		if OldestVersion.After(v) != old {
			t.Errorf("%v is too old: %t", v, !old)
		}
	}
}

// A wrong layout or number would overwrite memory.
func TestABI_MatchesHeaders(t *testing.T) {
	out := filepath.Join(t.TempDir(), "abi")
	pmixtest.Compile(t, out, "testdata/abi.c", "-Wextra", "-Werror",
		"-DGO_JOB_SIZE="+strconv.Quote(JobSize), "-DGO_LOCAL_PEERS="+strconv.Quote(LocalPeers))
	if text, err := exec.Command(out).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

// The caller does not wait, and the number of blocked threads is limited.
func TestCall_DoesNotReturn_IsNamed(t *testing.T) {
	why := errors.New("enough")
	calls := make(callSlots, 2)
	stop := make(chan struct{})
	hang := func() (int, error) { <-stop; return 7, nil }
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	for range cap(calls) {
		if _, err := runCall(ctx, calls, "PMIx_Get", hang); !errors.Is(err, why) || !strings.Contains(err.Error(), "PMIx_Get has not returned") {
			t.Errorf("got %v", err)
		}
	}
	if _, err := runCall(ctx, calls, "PMIx_Put", hang); !errors.Is(err, why) || !strings.Contains(err.Error(), "PMIx_Put was not made") {
		t.Errorf("over the limit: got %v", err)
	}
	close(stop)
	for range 3 { // Slots are free again.
		if v, err := runCall(t.Context(), calls, "PMIx_Get", hang); v != 7 || err != nil {
			t.Errorf("afterwards: %d, %v", v, err)
		}
	}
}

func TestCall_ReturnsAtDeadline_ResultCounts(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	for range 100 {
		v, err := runCall(ctx, make(callSlots, 1), "PMIx_Get", func() (int, error) { return 7, nil })
		if ctx.Err() == nil && (v != 7 || err != nil) {
			t.Fatal(v, err)
		}
	}
	cancel()
}

// libpmix frees the memory that calls use.
func TestFinalize_CallsInProgress_Waits(t *testing.T) {
	calls := make(callSlots, 3)
	calls <- struct{}{}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := calls.acquireAll(ctx, "PMIx_Finalize"); !errors.Is(err, context.DeadlineExceeded) || len(calls) != 1 {
		t.Fatalf("%v, and %d calls", err, len(calls))
	}
	go func() { <-calls }()
	release, err := calls.acquireAll(t.Context(), "PMIx_Finalize")
	if err != nil || len(calls) != cap(calls)-1 {
		t.Fatalf("%v, and room for %d", err, cap(calls)-len(calls))
	}
	release()
	if len(calls) != 0 {
		t.Errorf("%d slots stay taken", len(calls))
	}
}

// The environment names no server, or a server that has ended.
func TestInit_NoServer_IsAnErrorAtOnce(t *testing.T) {
	library(t)
	for name, env := range map[string][]string{
		"nothing": nil,
		"gone": {"PMIX_NAMESPACE=job", "PMIX_RANK=0", "PMIX_VERSION=4.2.2", "PMIX_SERVER_URI41=pmix-server.1;tcp4://127.0.0.1:9",
			"PMIX_SERVER_URI4=pmix-server.1;tcp4://127.0.0.1:9"},
	} {
		out, err := pmixtest.RunAny(t, []string{"/usr/bin/env"}, "alone", env...)
		if err != nil || !strings.Contains(out, "PMIx_Init: ") {
			t.Errorf("%s: %v: %s", name, err, out)
		}
		t.Logf("%s: %s", name, out)
	}
}

func TestCall_NameDoesNotFit_IsRefused(t *testing.T) {
	l := library(t)
	long := strings.Repeat("x", MaxKey+1)
	for _, key := range []string{"", long, "a\x00b"} {
		if err := l.Put(t.Context(), key, nil); err == nil {
			t.Errorf("put of %q", key)
		}
		if _, err := l.Get(t.Context(), Proc{"job", 0}, key, 0); err == nil {
			t.Errorf("get of %q", key)
		}
	}
	if _, err := l.Get(t.Context(), Proc{long, 0}, "key", 0); err == nil {
		t.Error("a namespace that is too long")
	}
	if err := l.Fence(t.Context(), "job", []uint32{0, 1}, 0); err == nil {
		t.Error("a fence without a limit")
	}
	if err := l.Fence(t.Context(), "job", nil, time.Second); err == nil {
		t.Error("a fence without members")
	}
}

func TestApp_StringOrNumberDoesNotFit_IsRefused(t *testing.T) {
	good := App{Program: "/bin/true", Args: []string{strings.Repeat("x", MaxString)}, N: 1}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*App){
		"0 processes":      func(a *App) { a.N = 0 },
		"4294967296 proc":  func(a *App) { a.N = 1 << 32 },
		`of program ""`:    func(a *App) { a.Program = "" },
		"131072 bytes":     func(a *App) { a.Args = []string{strings.Repeat("x", MaxString+1)} },
		`2 bytes, "a\x00"`: func(a *App) { a.Env = []string{"a\x00"} },
		"at most 1048576":  func(a *App) { a.Env = slices.Repeat([]string{strings.Repeat("x", MaxString)}, 8) },
	} {
		a := good
		change(&a)
		if err := a.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
