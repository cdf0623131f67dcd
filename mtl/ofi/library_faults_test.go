package ofi_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/libfabric/testprov"
	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/ofi"
	"github.com/ferrympi/ferry/progress"
)

// compile compiles a C program or library of testdata.
func compile(t *testing.T, source string, flags ...string) string {
	t.Helper()
	needLibfabric(t)
	needs.Program(t, "gcc", "gcc and libc6-dev")
	if text, err := exec.Command("gcc", "-E", "-include", "rdma/fi_tagged.h", "-x", "c", "/dev/null").CombinedOutput(); err != nil {
		needs.Missing(t, "install libfabric-dev: %s", text)
	}
	out := filepath.Join(t.TempDir(), strings.TrimSuffix(source, ".c"))
	text, err := exec.Command("gcc", append([]string{"-o", out, fmt.Sprintf("-DLIBRARY=%q", testprov.System()), filepath.Join("testdata", source)}, flags...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return out
}

// faultyLibrary returns a library with a fault. The cleanup ends hanging calls.
func faultyLibrary(t *testing.T, fault string) string {
	lib := compile(t, "fault.c", "-shared", "-fPIC", "-ldl")
	t.Setenv("FABRIC_FAULT", fault)
	t.Setenv("FABRIC_FAULT_END", lib+".end")
	t.Cleanup(func() { endHangs(t, lib) })
	return lib
}

// endHangs waits for the end of hanging calls of a faulty library. Later calls hang again.
func endHangs(t *testing.T, lib string) {
	t.Helper()
	if err := os.WriteFile(lib+".end", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for ofi.HangingCalls() > 0 {
		time.Sleep(time.Millisecond)
	}
	if err := os.Remove(lib + ".end"); err != nil {
		t.Fatal(err)
	}
}

// withGrowingLimit calls try with a time limit for calls of the library. A busy machine may exceed it with a provider
// that works, so try is repeated with a higher limit after an error that names a call as hanging.
func withGrowingLimit(t *testing.T, try func(limit time.Duration) error) {
	t.Helper()
	for limit := 3 * time.Second; ; limit *= 4 {
		err := try(limit)
		if err == nil {
			return
		}
		if limit > 30*time.Second || !strings.Contains(err.Error(), "does not return") {
			t.Fatal(err)
		}
		t.Logf("with a limit of %v: %v", limit, err)
	}
}

// discardUpcall is an upcall that ignores everything.
type discardUpcall struct{}

func (discardUpcall) Control([]byte)                            {}
func (discardUpcall) Endpoint(uint32, int) (mtl.Endpoint, bool) { return 0, false }

func open(t *testing.T, set func(params any)) (mtl.Module, error) {
	t.Helper()
	return openAs(t, bootstrap.Identity{Size: 1, LocalSize: 1}, set)
}

// openAs opens a module for a process of a job.
func openAs(t *testing.T, id bootstrap.Identity, set func(params any)) (mtl.Module, error) {
	t.Helper()
	c := ofi.Component()
	p := c.Params()
	framework.FillDefaults(p)
	set(p)
	id.Proc = framework.Proc{Namespace: "job"}
	return c.Open(t.Context(), mtl.Env{
		Env:    progress.Env{Identity: id, Worlds: framework.NewWorlds("job"), Self: framework.Incarnation{Nonce: 7}, Logger: slog.New(slog.DiscardHandler)},
		Params: p, Upcall: discardUpcall{},
	})
}

// The mode is fixed when a session opens, and the job may grow.
func TestWait_JobMayOutgrowTheProcessors_UsesADescriptor(t *testing.T) {
	testprov.Need(t, "tcp;ofi_rxm")
	for _, most := range []int{1, 1 << 16} {
		m, err := openAs(t, bootstrap.Identity{Size: 1, LocalSize: 1, MaxSize: most}, func(p any) { ofi.Set(p, []string{"tcp;ofi_rxm"}, "auto", "auto") })
		if err != nil {
			t.Fatal(err)
		}
		if _, hasDescriptor := framework.As[progress.Descriptor](m); hasDescriptor != (most > 1) {
			t.Errorf("at most %d processes: awaited through a descriptor: %v", most, hasDescriptor)
		}
		m.Close()
	}
}

func TestProbe_MissingLibrary_IsUnavailable(t *testing.T) {
	needLibfabric(t)
	c := ofi.Component()
	p := c.Params()
	framework.FillDefaults(p)
	ofi.SetLibrary(p, "libnosuchfabric.so.1", time.Second)
	if v := c.Probe(t.Context(), p); v.Status != framework.StatusUnavailable || !strings.Contains(v.Reason, "libnosuchfabric.so.1") || v.Hint == "" {
		t.Errorf("%v", v)
	}
}

// Probe loads a library that it does not find. The dynamic linker reads LD_LIBRARY_PATH at the start of a process.
func TestProbe_HangingLibrary_IsUnavailable(t *testing.T) {
	lib := faultyLibrary(t, "hang_load")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"=probe "+filepath.Base(lib), "LD_LIBRARY_PATH="+filepath.Dir(lib))
	text, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(text), "does not return within 50ms") {
		t.Errorf("%v: %s", err, text)
	}
}

// probeChild prints the verdict of Probe about a library.
func probeChild(name string) error {
	os.Unsetenv("LD_LIBRARY_PATH")
	c := ofi.Component()
	p := c.Params()
	framework.FillDefaults(p)
	ofi.SetLibrary(p, name, 50*time.Millisecond)
	v := c.Probe(context.Background(), p)
	if v.Status != framework.StatusUnavailable {
		return fmt.Errorf("it is %v", v.Status)
	}
	fmt.Println(v.Reason)
	return nil
}

func TestOpen_OldLibrary_IsRefused(t *testing.T) {
	lib := faultyLibrary(t, "old")
	_, err := open(t, func(p any) { ofi.SetLibrary(p, lib, 10*time.Second) })
	if !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "1.5") || !strings.Contains(err.Error(), "1.17") {
		t.Errorf("%v", err)
	}
}

func TestOpen_UnknownProvider_ErrorListsProviders(t *testing.T) {
	needLibfabric(t)
	_, err := open(t, func(p any) { ofi.Set(p, []string{"nosuch"}, "auto", "auto") })
	if !errors.Is(err, framework.ErrConfig) || !strings.Contains(err.Error(), `"nosuch"`) || !strings.Contains(err.Error(), "tcp;ofi_rxm") {
		t.Errorf("%v", err)
	}
}

// With libfabric 2, tcp is also a provider by itself.
func TestOpen_BaseProviderName_ResolvesToLayer(t *testing.T) {
	needLibfabric(t)
	m, err := open(t, func(p any) { ofi.Set(p, []string{"TCP;RXM"}, "auto", "auto") })
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	d := m.Describe()
	if d.Provider != "tcp;ofi_rxm" || len(d.Notes) == 0 || !strings.Contains(d.Notes[0], "tcp;ofi_rxm") || !strings.Contains(d.Notes[0], "TCP;RXM") {
		t.Errorf("%s, %q", d.Provider, d.Notes)
	}
	for _, name := range []string{"txp;rxm", "verbs;"} {
		_, err := open(t, func(p any) { ofi.Set(p, []string{"tcp;ofi_rxm", name}, "auto", "auto") })
		if !errors.Is(err, framework.ErrConfig) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOpen_ImpossibleLayout_IsRefused(t *testing.T) {
	needLibfabric(t)
	for _, layout := range []string{"32/31/31", "1/2/3", "wide"} {
		_, err := open(t, func(p any) { ofi.Set(p, []string{"tcp;ofi_rxm"}, layout, "auto") })
		if err == nil || !strings.Contains(err.Error(), layout) {
			t.Errorf("%s: %v", layout, err)
		}
	}
}

func TestOpen_HangingLibrary_ReturnsAfterDeadline(t *testing.T) {
	needs.Time(t)
	for fault, remedy := range map[string]string{"hang_load": "was not loaded", "hang_start": "FI_LOG_LEVEL", "hang_getinfo": "provider_include"} {
		t.Run(fault, func(t *testing.T) {
			lib := faultyLibrary(t, fault)
			set := func(p any) { ofi.SetLibrary(p, lib, 500*time.Millisecond) }
			if _, err := open(t, set); err == nil || !strings.Contains(err.Error(), remedy) {
				t.Errorf("%v", err)
			}
			// The second call fails at once and starts no further thread.
			before := runtime.NumGoroutine()
			if _, err := open(t, set); err == nil || !strings.Contains(err.Error(), "since") {
				t.Errorf("%v", err)
			}
			after := runtime.NumGoroutine()
			for end := time.Now().Add(10 * time.Second); after > before && time.Now().Before(end); after = runtime.NumGoroutine() {
				time.Sleep(time.Millisecond) // The goroutine ends when it runs.
			}
			if after > before {
				t.Errorf("%d goroutines, and then %d", before, after)
			}
		})
	}
}

// With provider_include, the hanging provider is skipped or not queried.
func TestOpen_OneProviderHangs_UsesAnother(t *testing.T) {
	needs.Time(t)
	testprov.Need(t, "net;ofi_rxm")
	lib := faultyLibrary(t, "hang_tcp")
	for _, include := range [][]string{{"net;ofi_rxm"}, {"tcp;ofi_rxm", "net;ofi_rxm"}} {
		withGrowingLimit(t, func(limit time.Duration) error {
			defer endHangs(t, lib)
			m, err := open(t, func(p any) {
				ofi.Set(p, include, "auto", "auto")
				ofi.SetLibrary(p, lib, limit)
			})
			if err != nil {
				return fmt.Errorf("%q: %w", include, err)
			}
			defer m.Close()
			d := m.Describe()
			hangs := slices.ContainsFunc(d.Candidates, func(c mtl.Candidate) bool {
				return c.Provider == "tcp;ofi_rxm" && c.Unavailable && c.Hangs && strings.Contains(c.Reason, "does not return")
			})
			if asked := len(include) > 1; d.Provider != "net;ofi_rxm" || hangs != asked || (ofi.HangingCalls() > 0) != asked {
				return fmt.Errorf("%q: %s was chosen, %d calls hang, and the candidates are %+v", include, d.Provider, ofi.HangingCalls(), d.Candidates)
			}
			return nil
		})
	}
}

func TestSurvey_ContextEnds_Returns(t *testing.T) {
	needs.Time(t)
	lib := faultyLibrary(t, "hang_getinfo")
	c := ofi.Component()
	p := c.Params()
	framework.FillDefaults(p)
	ofi.SetLibrary(p, lib, time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.(mtl.Surveyor).Survey(ctx, p); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func TestOpen_BrokenProvider_UsesNext(t *testing.T) {
	needs.Time(t)
	testprov.Need(t, "net;ofi_rxm")
	for fault, reason := range map[string]string{"hang_domain": "does not return", "drop": "self-test: a short message"} {
		t.Run(fault, func(t *testing.T) {
			lib := faultyLibrary(t, fault)
			withGrowingLimit(t, func(limit time.Duration) error {
				defer endHangs(t, lib)
				m, err := open(t, func(p any) {
					ofi.Set(p, []string{"tcp;ofi_rxm", "net;ofi_rxm"}, "auto", "auto")
					ofi.SetLibrary(p, lib, limit)
				})
				if err != nil {
					return err
				}
				defer m.Close()
				return checkReplaced(m.Describe(), reason)
			})
		})
	}
}

// checkReplaced requires that net;ofi_rxm replaces tcp;ofi_rxm for a reason.
func checkReplaced(d mtl.Description, reason string) error {
	chosen, reasons := 0, 0
	for _, x := range d.Candidates {
		if x.Chosen {
			chosen++
		}
		if strings.HasPrefix(x.Name, "tcp;ofi_rxm") && strings.Contains(x.Reason, reason) {
			reasons++
		}
	}
	if d.Provider != "net;ofi_rxm" || chosen != 1 || reasons == 0 {
		return fmt.Errorf("%s was chosen, one of %d, and %d candidates have the reason %q: %+v", d.Provider, chosen, reasons, reason, d.Candidates)
	}
	return nil
}

// The self-test detects a provider that mixes segments of claimed messages. ferry prevents this over ofi_rxm, even if
// the environment enables segmentation.
func TestSelftest_MixedSegments_AreDetected(t *testing.T) {
	testprov.Need(t, "net;ofi_rxm")
	const limit = "FI_OFI_RXM_SAR_LIMIT"
	os.Setenv(limit, "131072")
	t.Cleanup(func() { os.Setenv(limit, "0") }) // The value in other tests.
	for fault, finding := range map[string]string{"none": "", "segments": "self-test: claimed messages"} {
		t.Run(fault, func(t *testing.T) {
			lib := faultyLibrary(t, fault)
			m, err := open(t, func(p any) {
				ofi.Set(p, []string{"net;ofi_rxm"}, "auto", "auto")
				ofi.SetLibrary(p, lib, 10*time.Second)
			})
			if err == nil {
				m.Close()
			}
			if finding == "" && err != nil || finding != "" && (err == nil || !strings.Contains(err.Error(), finding)) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestDefects_WithoutFerry_Reproduce(t *testing.T) {
	claim := compile(t, "claim.c", "-lfabric")
	for _, c := range []struct {
		// segments is FI_OFI_RXM_SAR_LIMIT.
		provider, segments string
		works              bool
	}{
		{"tcp;ofi_rxm", "131072", true}, {"sockets", "131072", true}, {"net;ofi_rxm", "0", true}, {"net;ofi_rxm", "131072", false},
		{"net", "131072", false}, {"udp;ofi_rxd", "131072", false}, {"shm", "131072", false},
	} {
		provider, works := c.provider, c.works
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, claim, provider)
		cmd.Env = append(os.Environ(), "FI_OFI_RXM_SAR_LIMIT="+c.segments)
		text, err := cmd.CombinedOutput()
		cancel()
		// A crashed program leaves the files of provider shm.
		left, _ := filepath.Glob(fmt.Sprintf("/dev/shm/%d:*", cmd.Process.Pid))
		for _, name := range left {
			if err := os.Remove(name); err != nil {
				t.Error(err)
			}
		}
		switch {
		case works && err != nil:
			t.Errorf("%s: %v: %s", provider, err, text)
		case !works && err == nil:
			t.Logf("%s works: this libfabric is newer than 1.17, or has been repaired", provider)
		default:
			t.Logf("%s: %s", provider, strings.TrimSpace(string(text)))
		}
	}
}

// Layout data requires that receives with and without an address match in order, which they don't in libfabric 2.3 to 2.6.
// The packed layout uses no addresses. The notes contain the reason.
func TestLayout_ReceivesOutOfOrder_IsPacked(t *testing.T) {
	for fault, why := range map[string]string{
		"order":      "self-test: receives with and without an address, in order, posted before their messages",
		"undirected": "completion data or receives from one address",
	} {
		t.Run(fault, func(t *testing.T) {
			lib := faultyLibrary(t, fault)
			m, err := open(t, func(p any) {
				ofi.Set(p, []string{"tcp;ofi_rxm"}, "auto", "poll")
				ofi.SetLibrary(p, lib, 10*time.Second)
			})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			d := m.Describe()
			if !strings.HasPrefix(d.Mode, "packed") || !slices.ContainsFunc(d.Notes, func(n string) bool { return strings.Contains(n, why) }) {
				t.Errorf("%s, %q", d.Mode, d.Notes)
			}
			if m, err := open(t, func(p any) {
				ofi.Set(p, []string{"tcp;ofi_rxm"}, "data", "poll")
				ofi.SetLibrary(p, lib, 10*time.Second)
			}); err == nil {
				m.Close()
				t.Error("layout data opens")
			} else if !strings.Contains(err.Error(), why) {
				t.Error(err)
			}
		})
	}
}
