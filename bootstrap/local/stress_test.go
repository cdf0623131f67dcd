package local

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local/server"
	"github.com/ferrympi/ferry/framework"
)

// crowd is a job whose processes take part in changes until they leave or are killed. Rank 0 leads.
type crowd struct {
	t   *testing.T
	ctx context.Context
	l   *launcher
	wg  sync.WaitGroup

	mu    sync.Mutex
	alive map[int]*client
	// Of changes, by delta; the first process's.
	outcomes map[string]string
	// Number of processes that had that outcome.
	rounds map[string]int
}

// record compares the outcome of a change in one process with that in the others.
func (w *crowd) record(rank int, delta string, got bootstrap.Integration, err error) {
	outcome := "integrated as " + got.Pset
	if err != nil {
		outcome = "undone"
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.alive[rank] == nil {
		return // Killed: its connection has ended, whatever the outcome.
	}
	if first, ok := w.outcomes[delta]; ok && first != outcome {
		w.t.Errorf("rank %d: the change %q is %s (%v), and %s in another process", rank, delta, outcome, err, first)
	}
	w.outcomes[delta] = outcome
	w.rounds[delta]++
}

// add makes a client a process of the job.
func (w *crowd) add(rank int, c bootstrap.Client) {
	w.mu.Lock()
	w.alive[rank] = c.(*client)
	w.mu.Unlock()
	if rank > 0 {
		w.wg.Go(func() { w.follow(rank, c.(*client)) })
	}
}

// follow takes part in changes until the process leaves or is killed.
func (w *crowd) follow(rank int, c *client) {
	pset := bootstrap.PsetWorld
	for {
		change, _, err := c.Query(w.ctx, pset, true)
		if err != nil {
			if !errors.Is(err, framework.ErrTransport) && !errors.Is(err, framework.ErrPset) && !errors.Is(err, framework.ErrClosed) {
				w.t.Errorf("rank %d: query %q: %v", rank, pset, err)
			}
			return // Killed, or ended with its change.
		}
		if change.Type == bootstrap.ChangeFailed {
			continue
		}
		got, err := c.Integrate(w.ctx, change.Delta, "")
		w.record(rank, change.Delta, got, err)
		if err != nil {
			continue
		}
		if pset = got.Pset; got.Terminate {
			w.exit(rank, "")
			return
		}
	}
}

// exit ends a process with a reason; "" is status 0.
func (w *crowd) exit(rank int, reason string) {
	w.mu.Lock()
	c := w.alive[rank]
	delete(w.alive, rank)
	w.mu.Unlock()
	if c == nil {
		return
	}
	if reason == "" {
		c.Close()
	} else {
		c.conn.Close()
	}
	w.l.j.srv.ProcExited(rank, reason)
}

// kill kills some process but rank 0.
func (w *crowd) kill() {
	w.mu.Lock()
	victim := -1
	for rank := range w.alive { // In random order.
		if rank > 0 {
			victim = rank
			break
		}
	}
	w.mu.Unlock()
	if victim > 0 {
		w.exit(victim, "signal: killed")
	}
}

// lead makes one change of main, and returns the main set after it.
func (w *crowd) lead(c *client, main string, op bootstrap.PsetOp, args bootstrap.PsetArgs) (string, error) {
	names, err := c.Operate(w.ctx, op, []string{main}, args)
	if err != nil {
		return main, err
	}
	got, err := c.Integrate(w.ctx, names[0], "")
	w.record(0, names[0], got, err)
	if err != nil {
		return main, err
	}
	for _, err := range []error{c.FinishChange(w.ctx, names[0]), c.DeletePset(w.ctx, names[0])} {
		if err != nil {
			w.t.Error(err)
		}
	}
	return got.Pset, nil
}

// Nothing hangs, and each change has one outcome.
func TestChanges_KillsAtRandomMoments_AllMembersAgree(t *testing.T) {
	const changes, most = 150, 6
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	l := newLauncher(ctx, 30*time.Second)
	w := &crowd{t: t, ctx: ctx, l: l, alive: map[int]*client{}, outcomes: map[string]string{}, rounds: map[string]int{}}
	l.opened = w.add
	l.ended = func(rank int) { w.exit(rank, "signal: killed") }
	l.j = testJob(t, server.Options{Size: 1, MaxProcs: most, Order: l.order})
	root := l.j.open(t, 0).(*client)
	w.add(0, root)
	stop := make(chan struct{})
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(rand.IntN(4000)) * time.Microsecond):
				w.kill()
			}
		}
	}()
	main, done := bootstrap.PsetWorld, 0
	for range changes {
		op := []bootstrap.PsetOp{bootstrap.PsetGrow, bootstrap.PsetShrink, bootstrap.PsetReplace}[rand.IntN(3)]
		if info, err := root.Pset(ctx, main); err == nil && info.Members.Len() == 1 {
			op = bootstrap.PsetGrow // Rank 0 stays.
		}
		next, err := w.lead(root, main, op, bootstrap.PsetArgs{Add: 1 + rand.IntN(3), Sub: rand.IntN(2), Partial: true})
		if main = next; err == nil {
			done++
		} else if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	<-killed
	for { // Back to rank 0.
		info, err := root.Pset(ctx, main)
		if main == bootstrap.PsetWorld || err != nil || info.Members.Len() == 1 {
			break
		}
		if main, err = w.lead(root, main, bootstrap.PsetShrink, bootstrap.PsetArgs{Sub: info.Members.Len() - 1}); err != nil && ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	l.wg.Wait() // Those of an undone change may start last.
	w.wg.Wait()
	l.wg.Wait()
	if err := errors.Join(l.err, ctx.Err()); err != nil {
		t.Error(err)
	}
	t.Log(fmt.Sprint(done, " changes of ", changes, ", ", len(w.outcomes), " requested"))
}
