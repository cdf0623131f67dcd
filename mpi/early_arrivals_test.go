package mpi_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
	"github.com/ferrympi/ferry/pml"
)

// hasty is the client of a singleton whose launcher requests a dump at once.
type hasty struct{ bootstrap.Client }

func (hasty) BeginIncarnation(uint64)                             {}
func (hasty) EndIncarnation()                                     {}
func (hasty) Disconnect(framework.Proc, uint64, string)           {}
func (hasty) ReportBroken(cid.Extended, []framework.Proc, string) {}

func (hasty) OnEvent(f func(bootstrap.Event)) {
	if f != nil {
		f(bootstrap.Event{Kind: bootstrap.Dump})
		time.Sleep(10 * time.Millisecond) // it happens before the session is open
	}
}

func TestDump_SessionOpens_IsAnswered(t *testing.T) {
	client, err := local.Component().Open(t.Context(), bootstrap.Env{Params: local.Component().Params()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	s, err := mpi.OpenSession(t.Context(), mpi.WithBootstrap(hasty{client}))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestDump_SessionFailsToOpen_IsAnswered(t *testing.T) {
	client, err := local.Component().Open(t.Context(), bootstrap.Env{Params: local.Component().Params()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	options := withOpening(func(context.Context) error { return errors.New("out of luck") })
	if _, err := mpi.OpenSession(t.Context(), append(options, mpi.WithBootstrap(hasty{client}))...); err == nil {
		t.Error("the session opened")
	}
}

// opening is ob1, with something to do first.
type opening struct {
	pml.Component
	first func(context.Context) error
}

func (opening) Info() framework.Info {
	return framework.Info{Kind: framework.PML, Name: "opening", Version: "0", Priority: 99}
}

func (o opening) Open(ctx context.Context, env pml.Env) (pml.Module, error) {
	if err := o.first(ctx); err != nil {
		return nil, err
	}
	return o.Component.Open(ctx, env)
}

func withOpening(first func(context.Context) error) []mpi.SessionOption {
	reg := components.Standard()
	ob1, _ := reg.Lookup(framework.PML, "ob1")
	reg.Register(opening{ob1.(pml.Component), first})
	return []mpi.SessionOption{mpi.WithRegistry(reg), mpi.WithParam("pml", "opening")}
}

func TestOpenSession_RanksWaitForEachOther_AllOpen(t *testing.T) {
	t.Parallel()
	const n = 4
	var here sync.WaitGroup
	here.Add(n)
	options := withOpening(func(ctx context.Context) error {
		here.Done()
		all := make(chan struct{})
		go func() { here.Wait(); close(all) }()
		select {
		case <-all:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	job := mpitest.Job{Size: n, Options: func(int) []mpi.SessionOption { return options }}
	job.Run(t, func(ctx context.Context, c *mpi.Comm) error { return mpi.Barrier(ctx, c) })
}

func TestOpenSession_FirstStillOpens_SecondJoins(t *testing.T) {
	began, goOn := make(chan struct{}, 2), make(chan error, 2)
	options := withOpening(func(context.Context) error {
		began <- struct{}{}
		return <-goOn
	})
	open := func(ctx context.Context) chan error {
		end := make(chan error, 1)
		go func() {
			s, err := mpi.OpenSession(ctx, options...)
			if err == nil {
				err = s.Close()
			}
			end <- err
		}()
		return end
	}
	first := open(t.Context())
	<-began
	ctx, cancel := context.WithCancel(t.Context())
	withdrawn := open(ctx)
	cancel()
	if err := <-withdrawn; !errors.Is(err, context.Canceled) {
		t.Errorf("a session that waited and was withdrawn: %v", err)
	}
	second := open(t.Context())
	goOn <- errors.New("out of luck")
	if err := <-first; err == nil {
		t.Error("the first session opened")
	}
	<-began // The second session opens the process itself.
	goOn <- nil
	if err := <-second; err != nil {
		t.Errorf("the session that waited for one that failed: %v", err)
	}
}
