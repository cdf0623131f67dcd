package server

import (
	"errors"
	"sync"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local"
	"github.com/ferrympi/ferry/framework"
)

// The server's memory does not grow with the number of changes.
func TestChange_ProcessesThatLeft_AreDropped(t *testing.T) {
	orders := NewQueue[Order]()
	s, err := New(Options{Size: 1, MaxProcs: 2, Order: orders.Add})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Listen(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	root := dial(t, s, 0)
	defer root.Close()
	var launcher sync.WaitGroup
	over := make(chan struct{})
	launcher.Go(func() {
		for {
			select {
			case <-orders.Ready():
			case <-over:
				return
			}
			for _, o := range orders.Take() {
				if o.Kind == StartProcs {
					s.Started(o.First, 0, nil)
				}
			}
		}
	})
	defer launcher.Wait()
	defer close(over)
	main := bootstrap.PsetWorld
	const rounds = 20
	for rank := 1; rank <= rounds; rank++ {
		names := operate(t, root, bootstrap.PsetGrow, bootstrap.PsetArgs{Add: 1}, main)
		added := dial(t, s, rank)
		integrate(t, names[0], root, added)
		less := operate(t, root, bootstrap.PsetShrink, bootstrap.PsetArgs{Sub: 1}, names[1])
		integrate(t, less[0], root, added)
		exit(t, s, rank, added)
		main = less[1]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.procs) != 1 || len(s.failures) != 0 || len(s.eventLog.unsentLeft) != 0 || len(s.starting) != 0 || s.sets.Next() != rounds+1 {
		t.Errorf("%d processes, %d deaths, %d departures and %d orders are recorded after %d ranks", len(s.procs), len(s.failures), len(s.eventLog.unsentLeft), len(s.starting), s.sets.Next())
	}
}

// exit ends a process whose session is closed or, for every second rank, is not.
func exit(t *testing.T, s *Server, rank int, client bootstrap.Client) {
	t.Helper()
	s.mu.Lock()
	c := s.procs[uint32(rank)].conn
	s.mu.Unlock()
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	s.ProcExited(rank, []string{"", "signal: killed"}[rank%2])
	<-c.done
	s.flushSettledLeft()
}

func dial(t *testing.T, s *Server, rank int) bootstrap.Client {
	t.Helper()
	c := connect(t, s, rank)
	if id := c.Identity(); int(id.Proc.Rank) != rank || id.FirstRank != rank || id.Size != 1 {
		t.Fatalf("rank %d is %+v", rank, id)
	}
	return c
}

// connect opens the client of a rank.
func connect(t *testing.T, s *Server, rank int) bootstrap.Client {
	t.Helper()
	c, err := local.Dial(t.Context(), s.Environ(rank), bootstrap.Env{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func changer(t *testing.T, c bootstrap.Client) bootstrap.Changer {
	t.Helper()
	ch, ok := framework.As[bootstrap.Changer](c)
	if !ok {
		t.Fatal("the client can't change the job")
	}
	return ch
}

func operate(t *testing.T, c bootstrap.Client, op bootstrap.PsetOp, args bootstrap.PsetArgs, pset string) []string {
	t.Helper()
	names, err := changer(t, c).Operate(t.Context(), op, []string{pset}, args)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// integrate integrates a change in all members, and finishes it in the first.
func integrate(t *testing.T, delta string, members ...bootstrap.Client) {
	t.Helper()
	errs := make([]error, len(members))
	var wg sync.WaitGroup
	for i, c := range members {
		wg.Go(func() { _, errs[i] = changer(t, c).Integrate(t.Context(), delta, "") })
	}
	wg.Wait()
	if err := errors.Join(append(errs, changer(t, members[0]).FinishChange(t.Context(), delta))...); err != nil {
		t.Fatal(err)
	}
}
