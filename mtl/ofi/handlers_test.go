package ofi_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/libfabric/testprov"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/ofi"
	"github.com/ferrympi/ferry/progress"
)

// psm3 and opx handle SIGSEGV and other signals when an endpoint opens, libpsm_infinipath when it is loaded. A nil
// pointer or a signal that the program expects then ends the process.
func TestOpen_ProviderInstallsSignalHandlers_AreRestored(t *testing.T) {
	lib := compile(t, "fault.c", "-shared", "-fPIC", "-ldl")
	for _, when := range []string{"load", "start", "open", "insert", "send"} {
		t.Run(when, func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), childVariable+"=handlers "+lib, "FABRIC_FAULT=handlers_"+when)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// Only rank 0 warns, and not if warnings are off.
func TestOpen_BrokenProvider_WarnsOnce(t *testing.T) {
	testprov.Need(t, "net;ofi_rxm")
	lib := compile(t, "fault.c", "-shared", "-fPIC", "-ldl")
	for how, want := range map[string]int{"0 on": 1, "0 off": 0, "1 on": 0} {
		t.Run(how, func(t *testing.T) {
			t.Parallel() // they wait most of the time
			withGrowingLimit(t, func(limit time.Duration) error {
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), fmt.Sprintf("%s=warned %s %s %v", childVariable, lib, how, limit), "FABRIC_FAULT=drop")
				out, err := cmd.CombinedOutput()
				if err != nil || strings.Count(string(out), "\n") != want || strings.Count(string(out), "is used instead of tcp;ofi_rxm") != want {
					return fmt.Errorf("%v: %s", err, out)
				}
				return nil
			})
		})
	}
}

// warnedChild opens two modules, one after the other, over a library in which
// tcp;ofi_rxm does not work.
func warnedChild(what string) error {
	var lib, warn, limit string
	var rank uint32
	if _, err := fmt.Sscan(what, &lib, &rank, &warn, &limit); err != nil {
		return err
	}
	deadline, err := time.ParseDuration(limit)
	if err != nil {
		return err
	}
	for range 2 {
		component := ofi.Component()
		p := component.Params()
		framework.FillDefaults(p)
		ofi.Set(p, []string{"tcp;ofi_rxm", "net;ofi_rxm"}, "auto", "auto")
		ofi.SetLibrary(p, lib, deadline)
		ofi.SetWarn(p, warn == "on")
		proc := framework.Proc{Namespace: "job", Rank: rank}
		m, err := component.Open(context.Background(), mtl.Env{
			Env:    progress.Env{Identity: bootstrap.Identity{Proc: proc, Size: 2, LocalSize: 2}, Worlds: framework.NewWorlds("job"), Self: framework.Incarnation{Nonce: 7}, Logger: slog.New(slog.DiscardHandler)},
			Params: p, Upcall: discardUpcall{},
		})
		if err != nil {
			return err
		}
		m.Close()
	}
	return nil
}

// handlersChild opens a module over the library, and raises a signal and a fault.
func handlersChild(lib string) error {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	component := ofi.Component()
	p := component.Params()
	framework.FillDefaults(p)
	ofi.Set(p, []string{"tcp;ofi_rxm"}, "auto", "auto")
	ofi.SetLibrary(p, lib, time.Minute)
	proc := framework.Proc{Namespace: "job"}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	m, err := component.Open(ctx, mtl.Env{
		Env:    progress.Env{Identity: bootstrap.Identity{Proc: proc, Size: 1, LocalSize: 1}, Worlds: framework.NewWorlds("job"), Self: framework.Incarnation{Nonce: 7}, Logger: slog.New(slog.DiscardHandler)},
		Params: p, Upcall: discardUpcall{},
	})
	if err != nil {
		return err
	}
	defer m.Close()
	return signalAndFault(ctx, c)
}

// signalAndFault sends this process a signal, which must arrive in term, and dereferences a nil pointer, which must
// panic. Both require Go's signal handlers.
func signalAndFault(ctx context.Context, term <-chan os.Signal) (err error) {
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-term:
	case <-ctx.Done():
		return errors.New("the signal has not come")
	}
	defer func() {
		if recover() == nil {
			err = errors.New("no panic")
		}
	}()
	var nowhere *int
	*nowhere = 1
	return nil
}
