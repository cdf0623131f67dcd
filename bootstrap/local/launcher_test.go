package local

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/bootstraptest"
	"github.com/ferrympi/ferry/bootstrap/local/server"
)

// launcher carries out the orders of a job's server. An added process is a client of this process.
type launcher struct {
	ctx     context.Context
	j       *job
	timeout time.Duration
	// Called for an added process, unless nil.
	opened func(rank int, c bootstrap.Client)
	// Ends a process. If it is nil, its connection is closed.
	ended func(rank int)
	wg    sync.WaitGroup

	mu      sync.Mutex
	cond    *sync.Cond
	orders  []server.Order
	running bool
	added   map[int]bootstrap.Client
	err     error
}

func newLauncher(ctx context.Context, timeout time.Duration) *launcher {
	l := &launcher{ctx: ctx, timeout: timeout, added: map[int]bootstrap.Client{}}
	l.cond = sync.NewCond(&l.mu)
	return l
}

// order queues an order, because the server holds its lock.
func (l *launcher) order(o server.Order) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.orders = append(l.orders, o)
	if !l.running {
		l.running = true
		l.wg.Go(l.run)
	}
}

func (l *launcher) run() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.orders) > 0 {
		o := l.orders[0]
		l.orders = l.orders[1:]
		l.mu.Unlock()
		l.do(o)
		l.mu.Lock()
	}
	l.running = false
}

func (l *launcher) do(o server.Order) {
	switch o.Kind {
	case server.StartProcs:
		for rank := o.First; rank < o.First+o.N; rank++ {
			c, err := l.j.dial(l.ctx, rank, l.timeout)
			l.mu.Lock()
			if l.err = errors.Join(l.err, err); err == nil {
				l.added[rank] = c
			}
			l.cond.Broadcast()
			l.mu.Unlock()
			if err == nil && l.opened != nil {
				l.opened(rank, c)
			}
		}
		l.j.srv.Started(o.First, 0, l.err)
	case server.EndProcs:
		for _, rank := range o.Ranks {
			if l.ended != nil {
				l.ended(rank)
				continue
			}
			l.mu.Lock()
			c := l.added[rank]
			l.mu.Unlock()
			if c != nil {
				c.(*client).conn.Close()
			}
			l.j.srv.ProcExited(rank, "signal: killed")
		}
	}
}

// wait returns the client of an added process.
func (l *launcher) wait(ctx context.Context, rank int) (bootstrap.Client, error) {
	stop := context.AfterFunc(ctx, l.cond.Broadcast)
	defer stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.added[rank] == nil {
		if l.err != nil || ctx.Err() != nil {
			return nil, fmt.Errorf("rank %d was not started: %w", rank, errors.Join(l.err, ctx.Err()))
		}
		l.cond.Wait()
	}
	return l.added[rank], nil
}

// kill ends a process as a crash does.
func (l *launcher) kill(rank int) error {
	if rank < len(l.j.clients) {
		return l.j.clients[rank].(*client).conn.Close()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.added[rank].(*client).conn.Close()
}

// close ends the added processes.
func (l *launcher) close() error {
	l.wg.Wait()
	for _, c := range l.added {
		_ = c.Close() // It may be closed.
	}
	return l.j.close()
}

// kitJob makes a job for the kit. It calls opened before processes connect.
func kitJob(ctx context.Context, base string, want bootstraptest.Want, opened func(*job)) (*bootstraptest.Job, error) {
	l := newLauncher(ctx, want.Timeout)
	opt := server.Options{Size: want.Size, MaxProcs: want.MaxProcs, Order: l.order}
	for name, ranks := range want.Psets {
		opt.Psets = append(opt.Psets, server.Pset{Name: name, Ranks: ranks})
	}
	j, err := newJob(base, opt)
	if err != nil {
		return nil, err
	}
	l.j = j
	if opened != nil {
		opened(j)
	}
	if err := j.openAll(ctx, want.Size, want.Timeout); err != nil {
		return nil, err
	}
	report := func(rank int) (reason string, err error) {
		j.srv.ReportDead(rank, "test")
		return "test", nil
	}
	return &bootstraptest.Job{Clients: j.clients, Kill: l.kill, ReportDead: report, Added: l.wait, Close: l.close}, nil
}
