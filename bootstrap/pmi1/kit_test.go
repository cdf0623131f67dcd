package pmi1

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/bootstraptest"
	"github.com/ferrympi/ferry/bootstrap/pmi1/pmi1test"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/needs"
)

// growingJob is a job of a server, whose spawned jobs belong to it.
type growingJob struct {
	server   *pmi1test.Server
	timeout  time.Duration
	exchange string
	maxProcs int

	mu      sync.Mutex
	clients map[int]bootstrap.Client
	// Closed with each new client and replaced.
	opened    chan struct{}
	err       error
	addresses []serverAddress
}

// open opens the client of a process of the job, or of a spawned job.
func (g *growingJob) open(ctx context.Context, s *pmi1test.Server, id int) (bootstrap.Client, error) {
	e := env(s, id, g.timeout)
	p := e.Params.(*Params)
	p.Exchange, p.Spawned, e.MaxRanks = g.exchange, s.Command().Program != "", g.maxProcs
	c, err := Component().Open(ctx, e)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.addresses = append(g.addresses, serverAddress{fd: -1, port: s.Port(), pmiID: id})
	if g.err = errors.Join(g.err, err); err == nil {
		g.clients[int(c.Identity().Proc.Rank)] = c
		close(g.opened)
		g.opened = make(chan struct{})
	}
	return c, err
}

// openSpawned opens the clients of a spawned job.
func (g *growingJob) openSpawned(s *pmi1test.Server) {
	var wg sync.WaitGroup
	for id := range s.Size() {
		wg.Go(func() { _, _ = g.open(context.Background(), s, id) }) // client returns the error.
	}
	wg.Wait()
}

// client waits for the client of a rank.
func (g *growingJob) client(ctx context.Context, rank int) (bootstrap.Client, error) {
	for {
		g.mu.Lock()
		c, err, opened := g.clients[rank], g.err, g.opened
		g.mu.Unlock()
		if c != nil || err != nil {
			return c, err
		}
		select {
		case <-opened:
		case <-ctx.Done():
			return nil, fmt.Errorf("rank %d: %w", rank, context.Cause(ctx))
		}
	}
}

// added waits for an added process and its connection to rank 0, which then notices its death.
func (g *growingJob) added(ctx context.Context, rank int) (bootstrap.Client, error) {
	c, err := g.client(ctx, rank)
	if sets, ok := framework.As[bootstrap.PsetSource](c); ok && err == nil {
		_, err = sets.Psets(ctx)
	}
	return c, err
}

// crash ends a process with its sockets.
func crash(c bootstrap.Client) error {
	p, ok := framework.As[interface{ Crash() error }](c)
	if !ok {
		return errors.New("the client can't crash")
	}
	return p.Crash()
}

// close ends the job. A process whose spawn is in progress ends with an error of its server.
func (g *growingJob) close() error {
	var errs []error
	g.mu.Lock()
	for _, c := range g.clients {
		if err := c.Close(); !errors.Is(err, framework.ErrClosed) {
			errs = append(errs, err)
		}
		errs = append(errs, crash(c))
	}
	g.mu.Unlock()
	g.server.Close()
	for _, at := range g.addresses {
		forget(at)
	}
	return errors.Join(errs...)
}

// factory makes jobs of processes with the port of a server, and an exchange.
func factory(style pmi1test.Style, exchange string) bootstraptest.Factory {
	return func(ctx context.Context, want bootstraptest.Want) (*bootstraptest.Job, error) {
		if len(want.Psets) > 0 {
			return nil, fmt.Errorf("PMI-1 has no process sets: %w", bootstraptest.ErrSkip)
		}
		g := &growingJob{timeout: want.Timeout, exchange: exchange, maxProcs: max(want.Size, want.MaxProcs), clients: map[int]bootstrap.Client{}, opened: make(chan struct{})}
		var err error
		g.server, err = pmi1test.Start(pmi1test.Options{
			Size: want.Size, KVSName: "kvs_" + rand.Text(), Style: style, Mapping: "(vector,(0,1,1))", OnSpawn: g.openSpawned,
		})
		if err != nil {
			return nil, err
		}
		job := &bootstraptest.Job{Close: g.close}
		if exchange == "auto" { // No processes are added with the others.
			job.Added = g.added
		}
		job.Kill = func(rank int) error {
			c, err := g.client(ctx, rank)
			if err != nil {
				return err
			}
			return crash(c)
		}
		for r := range want.Size {
			c, err := g.open(ctx, g.server, r)
			if err != nil {
				return nil, errors.Join(err, job.Close())
			}
			job.Clients = append(job.Clients, c)
		}
		return job, nil
	}
}

func TestKit(t *testing.T) {
	for name, style := range styles {
		t.Run(name, func(t *testing.T) {
			if style != pmi1test.HydraNew {
				needs.Time(t)
			}
			bootstraptest.Cases(factory(style, "auto")).Run(t)
		})
	}
}

// PMI-1 serves one request of a process at a time, and barriers cannot be withdrawn.
const oneAtATime = bootstraptest.Overlap | bootstraptest.Names | bootstraptest.Withdrawal | bootstraptest.Deaths

func TestKitOverGroups(t *testing.T) {
	bootstraptest.Cases(bootstraptest.Without(oneAtATime, factory(pmi1test.HydraNew, "groups"))).Run(t)
}

func TestKitOverAll(t *testing.T) {
	for name, style := range styles {
		t.Run(name, func(t *testing.T) {
			if style != pmi1test.HydraNew {
				needs.Time(t)
			}
			bootstraptest.Cases(bootstraptest.Without(oneAtATime|bootstraptest.Subsets, factory(style, "all"))).Run(t)
		})
	}
}
