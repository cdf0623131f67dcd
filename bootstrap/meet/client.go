package meet

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
	"github.com/ferrympi/ferry/bootstrap/internal/events"
	"github.com/ferrympi/ferry/bootstrap/internal/queries"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/netaddr"
)

// client is a process's part in the meeting service: a bootstrap.Client, and a
// bootstrap.EventSource. Each connection has a goroutine that reads, and another one while
// there is something to write. What has to be decided is decided under one lock, the
// place's, during which nobody waits.
type client struct {
	*endpoint
	launcher Launcher
	exchange Exchange // nil: constructs are between the members
	timeout  time.Duration

	hostTimeout    time.Duration
	processTimeout time.Duration

	answerGrace   time.Duration // defaultAnswerGrace; tests have less
	lookupTimeout time.Duration // defaultLookupTimeout; tests have less
	log           *slog.Logger
	selfLink      *link // to this process itself

	ctx       context.Context // ends with the client
	cancelCtx context.CancelFunc
	done      <-chan struct{} // of ctx
	wg        sync.WaitGroup

	pendingCalls callTable
	relays       relayTable
	events       events.Queue

	refusals      refusalLog
	droppedFrames atomic.Uint64 // Notes and events GivenUp that were lost here.

	interfaces func() []netaddr.Interface // of this host

	// Guarded by place.mu.
	isClosed           bool
	lastCallID         uint64
	peers              map[uint32]*peer
	links              map[*link]struct{}
	joins              joinTable
	exchangeRounds     map[*exchangeRound]struct{}
	recentEvents       []recentEvent
	incarnation        uint64 // that has begun; 0: none
	isConnectScheduled bool
	isUpkeepScheduled  bool
	unsentLeft         []wire.EventBody  // lives that are over, of which others have not been told yet
	leftNonces         map[uint32]uint64 // Nonce of the last incarnation of each process that has ended in good order.

	nextAbsentRank uint32 // First rank of the next nextAbsent.

	wakeWatch   chan struct{} // Wakes watchHosts; has room for one.
	lastTickAt  time.Time     // Last tick of watchHosts.
	isLookingUp bool          // suspectHost looks up processes.

	checkedFailures int  // Of dead, when connectUnseenHosts was last scheduled.
	hasRevocation   bool // A revocation has arrived, or this client has made one.
}

// Open returns the client of the process that l describes. It publishes where the process
// is found, once in its life, and sends nothing to any other. l is the client's, and closed
// with it.
//
// Optional abilities: bootstrap.EventSource; those of bootstrap.Directory,
// bootstrap.PsetSource and bootstrap.Reporter that l has; bootstrap.Bystander with an
// Exchange that takes everyone. There is no ServerLost unless l
// is a Watcher.
//
// Errors: ErrTransport if the process can't listen, or l does not publish; ErrConfig if the
// process has a client that is open, or the job has too many processes.
func Open(ctx context.Context, env bootstrap.Env, l Launcher) (bootstrap.Client, error) {
	c, err := openClient(ctx, env, l, func(*entry) error { return nil })
	if err != nil {
		return nil, err
	}
	return withAbilities(c), nil
}

// open is Open; fresh may change the entry of a place that is new.
func openClient(ctx context.Context, env bootstrap.Env, l Launcher, initEntry func(*entry) error) (*client, error) {
	id := l.Identity()
	id.Most = id.Size // These launchers add no processes.
	if err := checkJob(id); err != nil {
		return nil, err
	}
	p, err := endpointOf(id, initEntry)
	if err != nil {
		return nil, err
	}
	c := newClient(env, l, p)
	if err := c.attach(); err != nil {
		return nil, err
	}
	if !p.isPublished {
		if err := l.Publish(ctx, p.ownEntry.encode()); err != nil {
			p.remove() // nobody knows of it; it stays taken, for whoever has found it before
			return nil, &framework.TransportError{Component: component, Peer: "the launcher", Op: "publish this process's entry", Err: err}
		}
		p.isPublished = true
	}
	c.startServing()
	c.watchLauncher(c.receiveLauncherEvent)
	return c, nil
}

// checkJob refuses what is no job, or one of too many processes: lists of ranks have a limit, and so
// has the rank in a context id.
func checkJob(id bootstrap.Identity) error {
	if id.Size < 1 || id.Size > wire.MaxElements || int64(id.Proc.Rank) >= int64(id.Size) {
		return fmt.Errorf("%w: %s: the launcher says that this is rank %d of a job of %d processes: want 1 to %d",
			framework.ErrConfig, component, id.Proc.Rank, id.Size, wire.MaxElements)
	}
	return nil
}

func newClient(env bootstrap.Env, l Launcher, p *endpoint) *client {
	c := &client{
		endpoint: p, launcher: l, timeout: cmp.Or(env.Timeout, bootstrap.DefaultTimeout), answerGrace: defaultAnswerGrace, lookupTimeout: defaultLookupTimeout, log: env.Logger,
		hostTimeout: cmp.Or(env.HostTimeout, bootstrap.DefaultHostTimeout), processTimeout: env.ProcessTimeout,
		leftNonces: map[uint32]uint64{}, peers: map[uint32]*peer{}, links: map[*link]struct{}{}, exchangeRounds: map[*exchangeRound]struct{}{},
		wakeWatch: make(chan struct{}, 1),
	}
	c.exchange, _ = framework.As[Exchange](l)
	c.selfLink = &link{client: c, rank: p.id.Proc.Rank, pendingRequests: withdrawals{}}
	c.ctx, c.cancelCtx = context.WithCancel(context.Background())
	c.done = c.ctx.Done()
	c.interfaces = sync.OnceValue(func() []netaddr.Interface {
		ifs, _ := netaddr.Host() // without, the order in which peers publish theirs stands
		return ifs
	})
	c.events.Spawn = c.wg.Go
	c.joins = joinTable{Namespace: p.id.Proc.Namespace, Size: p.id.Size, Ended: c.hasEnded,
		Early: func(r request) bool { return r.isRelayed }}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	return c
}

// take makes c the place's client.
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
	return nil
}

// begun lets others in.
func (c *client) startServing() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ev := range c.failures {
		c.events.Add(c.publicEvent(ev))
	}
	c.setAccepting(true)
	if c.unixListener != nil {
		c.wg.Go(func() { c.accept(c.unixListener) })
	}
	if c.nodeListener != nil {
		c.wg.Go(func() { c.accept(c.nodeListener) })
	}
	if c.tcpListener != nil {
		c.wg.Go(func() { c.accept(c.tcpListener) })
	}
	c.wg.Go(c.watchHosts)
	if c.processTimeout > 0 {
		c.wg.Go(func() { queries.Run(c.processTimeout, c.done, c.sendAliveQueries) })
	}
}

// watch has f called for what the launcher hears, if it can.
func (c *client) watchLauncher(f func(bootstrap.Event)) {
	if w, ok := framework.As[Watcher](c.launcher); ok {
		w.Watch(f)
	}
}

func (c *client) Identity() bootstrap.Identity { return c.id }

// Close says goodbye to all who are connected, and leaves the sockets open, on which
// nobody answers until the process opens a client again.
func (c *client) Close() error {
	c.awaitForwarders()
	ways, ok := c.shutdown(func(l *link) { l.sendLast(encodeFrame(wire.Goodbye, 0, wire.Empty{})) })
	if !ok {
		return closedError("Close") // and the launcher may have another watcher by now
	}
	c.watchLauncher(nil)
	// Who has heard it says so by closing.
	for _, l := range ways {
		time.AfterFunc(closeGrace, l.dropWhenWritten)
	}
	c.wg.Wait()
	if n := c.droppedFrames.Load(); n > 0 {
		c.log.Debug("bootstrap meet: notes dropped", "count", n)
	}
	c.lookUpRemaining()
	c.mu.Lock()
	c.client = nil
	c.mu.Unlock()
	return c.launcher.Close()
}

// Crash ends the process's client and its place as the end of the process would: without
// a goodbye, and nobody listens any more. It is for tests that have several processes in
// one program; after Close it gives back what outlasts a client.
func (c *client) Crash() error {
	c.remove()
	if _, ok := c.shutdown((*link).drop); !ok {
		return nil
	}
	c.watchLauncher(nil)
	c.wg.Wait()
	return nil
}

// finish ends all calls and attempts, and has each connection ended by f.
func (c *client) shutdown(f func(*link)) (ways []*link, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		return nil, false
	}
	c.isClosed = true
	c.pendingCalls.failAll(closedError("Close during the call"))
	clear(c.selfLink.pendingRequests)
	c.values.Forget()
	for l := range c.links {
		ways = append(ways, l)
		f(l)
	}
	c.cancelCtx()
	c.setAccepting(false)
	c.events.Stop()
	return ways, true
}

// after calls f on a goroutine of its own in d, unless the client closes before. The caller
// holds place.mu, and the client is not closed.
func (c *client) runAfter(d time.Duration, f func()) {
	c.wg.Go(func() {
		select {
		case <-time.After(d):
			f()
		case <-c.done:
		}
	})
}

// read serves one connection until it ends.
func (c *client) readLoop(l *link, r *wire.Reader) {
	err := c.readMessages(l, r)
	c.mu.Lock()
	quiet := c.isClosed || l.receivedGoodbye || errors.Is(err, io.EOF) || isAbruptClose(err)
	c.mu.Unlock()
	if !quiet {
		c.log.Warn("bootstrap meet: connection closed", "peer", c.procName(l.rank), "error", err)
	}
	// A peer that has closed waits until this end closes too, and may then come again: what
	// still waits here on its behalf is withdrawn before.
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
			continue // to the peer's end, so that it finds what was sent last
		}
		if err := c.handleMessage(l, m); err != nil {
			return fmt.Errorf("message of kind %d: %w", m.Kind, err)
		}
	}
}

// encodeFrame encodes what has no variable part, or was checked before.
func encodeFrame(k wire.Kind, id uint64, body any) []byte {
	f, err := wire.Encode(k, id, body)
	if err != nil {
		panic(err)
	}
	return f
}
