package mesh

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/bootstraptest"
	"github.com/ferrympi/ferry/framework"
)

// spawningLauncher is a launcher that starts processes.
type spawningLauncher struct {
	namedLauncher
	spawn func(ctx context.Context, s SpawnRequest) error
}

func (l spawningLauncher) Spawn(ctx context.Context, s SpawnRequest) error { return l.spawn(ctx, s) }
func (l spawningLauncher) LauncherName() string                            { return "the launcher of the test" }

// addedLauncher is the launcher of a started process.
type addedLauncher struct {
	spawningLauncher
	handOver HandOver
}

func (l addedLauncher) HandOver() (HandOver, bool) { return l.handOver, true }

// Identity has a map of the nodes like that of the first processes.
func (l addedLauncher) Identity() bootstrap.Identity {
	h, nodes := l.handOver, max(l.nodes, 1)
	at := l.rank - h.FirstRank
	id := bootstrap.Identity{Proc: l.proc(l.rank), FirstRank: h.FirstRank, Size: h.Size, MaxSize: h.MaxSize, LocalRank: at / nodes}
	for r := at % nodes; r < h.Size; r += nodes {
		id.LocalRanks = append(id.LocalRanks, uint32(h.FirstRank+r))
	}
	id.LocalSize = len(id.LocalRanks)
	return id
}

func (l addedLauncher) Publish(context.Context, []byte) error {
	return errors.New("an added process needs no address book")
}

func (l addedLauncher) Find(context.Context, framework.Proc) ([]byte, bool, error) {
	return nil, false, errors.New("an added process needs no address book")
}

// growingJob has the clients of a job that grows, by rank.
type growingJob struct {
	book *addressBook
	on   network
	env  bootstrap.Env

	mu      sync.Mutex
	clients map[int]*client
	// Closed with each new client and replaced.
	opened chan struct{}
	err    error
	wg     sync.WaitGroup
}

func newGrowingJob(b *addressBook, on network, env bootstrap.Env) *growingJob {
	return &growingJob{book: b, on: on, env: env, clients: map[int]*client{}, opened: make(chan struct{})}
}

// open opens the client of a first rank.
func (g *growingJob) open(ctx context.Context, rank int) (*client, error) {
	return g.openWith(ctx, rank, g.launcher(rank))
}

func (g *growingJob) launcher(rank int) spawningLauncher {
	return spawningLauncher{namedLauncher{launcher{g.book, rank}}, g.spawn}
}

func (g *growingJob) openWith(ctx context.Context, rank int, l Launcher) (*client, error) {
	c, err := openOn(ctx, g.on, l, g.env)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		g.err = errors.Join(g.err, err)
		return nil, err
	}
	g.clients[rank] = c
	close(g.opened)
	g.opened = make(chan struct{})
	return c, nil
}

// spawn opens clients, as started processes would.
func (g *growingJob) spawn(_ context.Context, s SpawnRequest) error {
	h, err := DecodeHandOver(s.HandOver)
	if err != nil {
		return err
	}
	for rank := h.FirstRank; rank < h.FirstRank+s.N; rank++ {
		g.wg.Go(func() { g.openWith(context.Background(), rank, addedLauncher{g.launcher(rank), h}) })
	}
	return nil
}

// client waits for the client of a rank.
func (g *growingJob) client(ctx context.Context, rank int) (*client, error) {
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

// close closes the clients, which may be closed, and ends their processes.
func (g *growingJob) close() error {
	g.wg.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	for _, c := range g.clients {
		if err := c.Close(); !errors.Is(err, framework.ErrClosed) {
			errs = append(errs, err)
		}
		c.Crash()
	}
	return errors.Join(errs...)
}

// factory makes jobs for the kit.
func factory(n network, hidden, nodes int) bootstraptest.Factory {
	return func(ctx context.Context, want bootstraptest.Want) (*bootstraptest.Job, error) {
		if len(want.Psets) > 0 {
			return nil, fmt.Errorf("this launcher has no process sets: %w", bootstraptest.ErrSkip)
		}
		b := newAddressBook(want.Size)
		b.hiddenLookups, b.nodes = hidden, nodes
		g := newGrowingJob(b, n, bootstrap.Env{Timeout: want.Timeout, MaxRanks: max(want.Size, want.MaxProcs)})
		var cs []*client
		job := &bootstraptest.Job{
			Kill: func(rank int) error {
				c, err := g.client(ctx, rank)
				if err != nil {
					return err
				}
				return c.Crash()
			},
			ReportDead: func(rank int) (reason string, err error) {
				cs[1].report(rank, "test")
				return "test", nil
			},
			LoseHost: func(ranks []int) error { return isolateHost(cs, ranks) },
			Break:    func(rank int) error { return breakConnections(cs, rank) },
			Added: func(ctx context.Context, rank int) (bootstrap.Client, error) {
				c, err := g.client(ctx, rank)
				if err == nil {
					err = awaitCondition("it is connected to rank 0", func() bool { return c.isConnected(0) })
				}
				if err != nil {
					return nil, err
				}
				return withOptionalInterfaces(c), nil
			},
			Close: g.close,
		}
		for r := range want.Size {
			c, err := g.open(ctx, r)
			if err != nil {
				return nil, errors.Join(err, job.Close())
			}
			cs = append(cs, c)
			job.Clients = append(job.Clients, withOptionalInterfaces(c))
		}
		return job, nil
	}
}
