package ofi_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/ofi"
	"github.com/ferrympi/ferry/progress"
)

// TestHandlersThatAProviderTakesAreGivenBack: psm3 and opx take SIGSEGV and more when an
// endpoint opens, libpsm_infinipath when it is loaded. A nil pointer ends the process then,
// and so does a signal that the program waits for.
func TestHandlersThatAProviderTakesAreGivenBack(t *testing.T) {
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

// handlersChild opens a module over the library, and has a signal come, and a fault.
func handlersChild(lib string) (err error) {
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
		Env:    progress.Env{Identity: bootstrap.Identity{Proc: proc, Size: 1, LocalSize: 1}, Worlds: framework.NewWorlds("job"), Self: framework.Life{Nonce: 7}, Logger: slog.New(slog.DiscardHandler)},
		Params: p, Upcall: deaf{},
	})
	if err != nil {
		return err
	}
	defer m.Close()
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-c:
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
