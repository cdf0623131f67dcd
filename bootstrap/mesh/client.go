package mesh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/calls"
	"github.com/ferrympi/ferry/bootstrap/internal/events"
	"github.com/ferrympi/ferry/bootstrap/internal/queries"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/netaddr"
)

// client implements bootstrap.Client and bootstrap.EventSource over connections among the members.
// Each connection has a goroutine that reads, and another one while frames are queued. endpoint.mu
// guards all decisions, and no holder of it blocks.
type client struct {
	*endpoint
	launcher Launcher
	// nil if constructs run between the members.
	exchange Exchange
	growth   growth
	timeouts clientTimeouts
	log      *slog.Logger

	lifetime
	connectionTable
	absentees     absentees
	setDefinition setDefinition
	upkeep        coordinatorUpkeep
	hostWatch     hostWatch

	pendingCalls *calls.Table[*call]
	// Calls for the requests that this process relays. Guarded by endpoint.mu.
	relays map[request]*call
	// Guarded by endpoint.mu.
	joins joinTable
	// Guarded by endpoint.mu.
	exchangeRounds map[*exchangeRound]struct{}

	events   events.Queue
	eventLog eventLog
	refusals refusalLog
	// Notes and disconnects that were lost here.
	droppedFrames atomic.Uint64

	interfaces func() []netaddr.Interface
}

// lifetime ends at the first Close or Crash. done is closed then, and wg has the goroutines.
type lifetime struct {
	ctx       context.Context
	cancelCtx context.CancelFunc
	done      <-chan struct{}
	wg        sync.WaitGroup
	// Guarded by endpoint.mu.
	isClosed bool
}

// connectionTable has the other processes and the connections to them. endpoint.mu guards it.
type connectionTable struct {
	peers map[uint32]*peer
	links map[*link]struct{}
	// Link of the requests of this process to itself. It never changes.
	selfLink *link
}

// clientTimeouts are constant, except in tests, which shorten answerGrace, lookup and exitGrace.
type clientTimeouts struct {
	call        time.Duration
	host        time.Duration
	process     time.Duration
	answerGrace time.Duration
	lookup      time.Duration
	exitGrace   time.Duration
}

// Open returns the client of the process that l describes. It publishes the entry of the process in
// the first client of the process, and sends nothing to other processes. The client owns l, and
// closes it.
//
// Optional interfaces are bootstrap.EventSource, bootstrap.PsetSource and bootstrap.Changer; those
// of bootstrap.Directory, bootstrap.Reporter and bootstrap.NodeMapper that l has; and
// bootstrap.Bystander if the Exchange of l requires all processes. The event ServerLost comes from
// a Watcher only. Changes that add processes need a Spawner and no Exchange.
//
// Errors are ErrTransport if the process cannot listen or l does not publish, and ErrConfig if the
// process has an open client, the job has too many processes, or the identity contradicts the hand-over.
// An added process with an Exchange gets ErrUnsupported.
func Open(ctx context.Context, env bootstrap.Env, l Launcher) (bootstrap.Client, error) {
	c, err := openClient(ctx, env, l, func(*entry) error { return nil })
	if err != nil {
		return nil, err
	}
	return withOptionalInterfaces(c), nil
}

// openClient implements Open. initEntry may change the entry of a new endpoint.
func openClient(ctx context.Context, env bootstrap.Env, l Launcher, initEntry func(*entry) error) (*client, error) {
	id, g, err := growthOf(l, env)
	if err != nil {
		return nil, err
	}
	p, err := endpointOf(id, g, initEntry)
	if err != nil {
		return nil, err
	}
	c := newClient(env, l, p)
	c.growth = g
	if err := c.attach(); err != nil {
		return nil, err
	}
	if !p.isPublished && !g.isAdded() {
		if err := l.Publish(ctx, p.ownEntry.encode()); err != nil {
			p.remove() // No process has the entry. p keeps its client, so a concurrent call that has found p fails.
			return nil, &framework.TransportError{Component: component, Peer: "the launcher", Op: "publish this process's entry", Err: err}
		}
		p.isPublished = true
	}
	c.startServing()
	c.watchLauncher(c.receiveLauncherEvent)
	return c, nil
}

// checkJob returns ErrConfig for an identity outside its job, and for a job over wire.MaxElements,
// which limits lists of ranks and the rank in a context id.
func checkJob(id bootstrap.Identity) error {
	if first, rank := int64(id.FirstRank), int64(id.Proc.Rank); id.Size < 1 || id.Size > wire.MaxElements || rank < first || rank >= first+int64(id.Size) {
		return fmt.Errorf("%w: %s: the launcher reports rank %d of a job of %d processes from rank %d on: want 1 to %d",
			framework.ErrConfig, component, id.Proc.Rank, id.Size, id.FirstRank, wire.MaxElements)
	}
	return nil
}

func newClient(env bootstrap.Env, l Launcher, p *endpoint) *client {
	c := &client{
		endpoint: p, launcher: l, log: env.Logger,
		timeouts: clientTimeouts{
			call: cmp.Or(env.Timeout, bootstrap.DefaultTimeout), host: cmp.Or(env.HostTimeout, bootstrap.DefaultHostTimeout), process: env.ProcessTimeout,
			answerGrace: defaultAnswerGrace, lookup: defaultLookupTimeout, exitGrace: defaultExitGrace,
		},
		connectionTable: connectionTable{peers: map[uint32]*peer{}, links: map[*link]struct{}{}},
		pendingCalls:    calls.New[*call](), relays: map[request]*call{}, exchangeRounds: map[*exchangeRound]struct{}{},
		hostWatch: hostWatch{wake: make(chan struct{}, 1)}, eventLog: eventLog{leftNonces: map[uint32]uint64{}},
	}
	c.exchange, _ = framework.As[Exchange](l)
	c.selfLink = &link{client: c, rank: p.id.Proc.Rank, pendingRequests: withdrawals{}}
	c.ctx, c.cancelCtx = context.WithCancel(context.Background())
	c.done = c.ctx.Done()
	c.interfaces = sync.OnceValue(func() []netaddr.Interface {
		ifs, _ := netaddr.Host() // On an error the order of the published addresses stands.
		return ifs
	})
	c.events.Spawn = c.wg.Go
	c.joins = joinTable{Namespace: p.id.Proc.Namespace, HasEnded: c.hasEnded,
		IsAnsweredFirst: func(r request) bool { return r.isRelayed }}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	return c
}

// attach makes c the client of its endpoint.
func (c *client) attach() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.isolationError(); err != nil {
		return err
	}
	if c.client != nil {
		return fmt.Errorf("%w: %s: this process has an open client already", framework.ErrConfig, component)
	}
	c.client = c
	c.joins.Size = int(c.rankLimit.Load()) // The client before may have raised it.
	return nil
}

// startServing reports the known failures, and accepts connections. An added process connects to
// rank 0, without waiting for it, so that rank 0 notices its end, and it notices that of its change.
func (c *client) startServing() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ev := range c.failures {
		c.events.Add(c.publicEvent(ev))
	}
	c.setAccepting(true)
	for _, l := range c.listeners.all() {
		c.wg.Go(func() { c.accept(l) })
	}
	if c.growth.isAdded() {
		c.keepConnected(0)
	}
	c.wg.Go(c.watchHosts)
	if c.timeouts.process > 0 {
		c.wg.Go(func() { queries.Run(c.timeouts.process, c.done, c.sendAliveQueries) })
	}
}

// watchLauncher sets the callback for the events of the launcher, if it is a Watcher.
func (c *client) watchLauncher(f func(bootstrap.Event)) {
	if w, ok := framework.As[Watcher](c.launcher); ok {
		w.Watch(f)
	}
}

func (c *client) Identity() bootstrap.Identity { return c.id }

// Close sends a goodbye on all connections. The sockets stay open, and do not answer until the
// process opens a client again.
func (c *client) Close() error {
	c.awaitForwarders()
	links, ok := c.shutdown(func(l *link) { l.sendLast(encodeFrame(wire.Goodbye, 0, wire.Empty{})) })
	if !ok {
		return closedError("Close") // The launcher may have another watcher by now.
	}
	c.watchLauncher(nil)
	// A peer confirms the goodbye by closing its end.
	for _, l := range links {
		time.AfterFunc(closeGrace, l.dropWhenWritten)
	}
	c.wg.Wait()
	if n := c.droppedFrames.Load(); n > 0 {
		c.log.Debug("bootstrap mesh: notes dropped", "count", n)
	}
	c.lookUpRemaining()
	c.mu.Lock()
	c.client = nil
	c.mu.Unlock()
	return c.launcher.Close()
}

// Crash ends the client and its endpoint as the end of the process would, without a goodbye. It is
// for tests with several processes in one program. After Close it releases the endpoint, which
// outlasts the client.
func (c *client) Crash() error {
	c.remove()
	if _, ok := c.shutdown((*link).drop); !ok {
		return nil
	}
	c.watchLauncher(nil)
	c.wg.Wait()
	return nil
}

// shutdown ends all calls and dial attempts, and applies f to each link.
func (c *client) shutdown(f func(*link)) (links []*link, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		return nil, false
	}
	c.isClosed = true
	c.pendingCalls.Fail(closedError("Close during the call"))
	c.withdrawRequests(c.selfLink)
	c.ownValues.store.DropWaiters()
	for l := range c.links {
		links = append(links, l)
		f(l)
	}
	c.cancelCtx()
	c.setAccepting(false)
	c.events.Stop()
	return links, true
}

// runAfter calls f on a goroutine of its own after d, unless the client closes before. The caller
// holds endpoint.mu, and the client is open.
func (c *client) runAfter(d time.Duration, f func()) {
	c.wg.Go(func() {
		select {
		case <-time.After(d):
			f()
		case <-c.done:
		}
	})
}

// readLoop serves a connection until it ends.
func (c *client) readLoop(l *link, r *wire.Reader) {
	err := c.readMessages(l, r)
	c.mu.Lock()
	isExpected := c.isClosed || l.receivedGoodbye || errors.Is(err, io.EOF) || isAbruptClose(err)
	c.mu.Unlock()
	if !isExpected {
		c.log.Warn("bootstrap mesh: connection closed", "peer", c.procName(l.rank), "error", err)
	}
	// A peer that has closed waits for the end of this connection, and may then connect again. Its
	// requests are withdrawn before.
	defer l.drop()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removeLink(l)
}

func (c *client) readMessages(l *link, r *wire.Reader) error {
	for {
		m, err := r.Next()
		if err != nil {
			return err
		}
		l.queries.Received()
		if m.Kind == wire.Goodbye {
			c.mu.Lock()
			l.receivedGoodbye = true
			c.mu.Unlock()
			return io.EOF
		}
		if c.ctx.Err() != nil || l.isExpelled.Load() {
			continue // Discard up to the end, so that the peer can read the last frame.
		}
		if err := c.handleMessage(l, m); err != nil {
			return fmt.Errorf("message of kind %d: %w", m.Kind, err)
		}
	}
}

// encodeFrame encodes a body that is known to be within its limits.
func encodeFrame(k wire.Kind, id uint64, body any) []byte {
	f, err := wire.Encode(k, id, body)
	if err != nil {
		panic(err)
	}
	return f
}
