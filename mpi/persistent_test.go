package mpi_test

import (
	"context"
	"sync"
	"testing"

	"github.com/ferrympi/ferry/mpi"
)

// One goroutine starts persistent requests while others use requests of the library, also the one of the last start. The race detector checks this.
func TestPersistent_WithOtherRequests_Completes(t *testing.T) {
	ctx := context.Background()
	s, err := mpi.OpenSession(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	g, err := s.Group(ctx, "mpi://SELF")
	if err != nil {
		t.Fatal(err)
	}
	c, err := mpi.CommFromGroup(ctx, g, "persistent")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const rounds = 2000
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		buf := make([]byte, 8)
		for range rounds {
			r, err := c.Irecv(buf, 0, 1)
			if err == nil {
				err = c.Send(ctx, make([]byte, 8), 0, 1)
			}
			if err == nil {
				_, err = r.Wait(ctx)
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	p, err := mpi.SendInit(c, []int64{1}, 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	in := make([]byte, 8)
	for range rounds {
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Recv(ctx, in, 0, 2); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPersistent_Nil_IsErrClosed(t *testing.T) {
	var p *mpi.Persistent
	_, waits := p.Wait(t.Context())
	_, done, tests := p.Test()
	for what, err := range map[string]error{"Start": p.Start(), "StartAll": mpi.StartAll([]*mpi.Persistent{p}), "Wait": waits, "Test": tests, "Free": p.Free()} {
		if err := wants(what, err, mpi.ErrClosed); err != nil {
			t.Error(err)
		}
	}
	if done || p.Request() != (mpi.Request{}) {
		t.Error("an operation that is nil is complete, or has a request")
	}
}
