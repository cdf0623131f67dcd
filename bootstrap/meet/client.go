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
	*place
	launcher Launcher
	exchange Exchange // nil: constructs are between the members
	timeout  time.Duration

	hostTimeout    time.Duration
	processTimeout time.Duration

	grace    time.Duration // answerGrace; tests have less
	learning time.Duration // learnTimeout; tests have less
	log      *slog.Logger
	own      *link // to this process itself

	ctx  context.Context // ends with the client
	stop context.CancelFunc
	done <-chan struct{} // of ctx
	wg   sync.WaitGroup

	answers answers
	relays  relays
	events  events.Queue

	refused refusedConns
	dropped atomic.Uint64 // Notes and events GivenUp that were lost here.

	interfaces func() []netaddr.Interface // of this host

	// Guarded by place.mu.
	closed   bool
	lastID   uint64
	peers    map[uint32]*peer
	links    map[*link]struct{}
	joins    joinTable
	rounds   map[*round]struct{}
	recent   []recent
	life     uint64 // that has begun; 0: none
	scouting bool
	tidying  bool
	unsaid   []wire.EventBody  // lives that are over, of which others have not been told yet
	lastLeft map[uint32]uint64 // Nonce of the last incarnation of each process that has ended in good order.

	scoutNext uint32 // First rank of the next scoutRound.

	wakeWatch   chan struct{} // Wakes watchHosts; has room for one.
	tickedAt    time.Time     // Last tick of watchHosts.
	isLookingUp bool          // doubtHost looks up processes.

	deadChecked   int  // Of dead, when checkNodes was last scheduled.
	hasRevocation bool // A revocation has arrived, or this client has made one.
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
	c, err := open(ctx, env, l, func(*entry) error { return nil })
	if err != nil {
		return nil, err
	}
	return withAbilities(c), nil
}

// open is Open; fresh may change the entry of a place that is new.
func open(ctx context.Context, env bootstrap.Env, l Launcher, fresh func(*entry) error) (*client, error) {
	id := l.Identity()
	id.Most = id.Size // These launchers add no processes.
	if err := checkJob(id); err != nil {
		return nil, err
	}
	p, err := placeOf(id, fresh)
	if err != nil {
		return nil, err
	}
	c := newClient(env, l, p)
	if err := c.take(); err != nil {
		return nil, err
	}
	if !p.published {
		if err := l.Publish(ctx, p.self.encode()); err != nil {
			p.leave() // nobody knows of it; it stays taken, for whoever has found it before
			return nil, &framework.TransportError{Component: component, Peer: "the launcher", Op: "publish this process's entry", Err: err}
		}
		p.published = true
	}
	c.begun()
	c.watch(c.fromLauncher)
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

func newClient(env bootstrap.Env, l Launcher, p *place) *client {
	c := &client{
		place: p, launcher: l, timeout: cmp.Or(env.Timeout, bootstrap.DefaultTimeout), grace: answerGrace, learning: learnTimeout, log: env.Logger,
		hostTimeout: cmp.Or(env.HostTimeout, bootstrap.DefaultHostTimeout), processTimeout: env.ProcessTimeout,
		lastLeft: map[uint32]uint64{}, peers: map[uint32]*peer{}, links: map[*link]struct{}{}, rounds: map[*round]struct{}{},
		wakeWatch: make(chan struct{}, 1),
	}
	c.exchange, _ = framework.As[Exchange](l)
	c.own = &link{c: c, rank: p.id.Proc.Rank, pending: withdraws{}}
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.done = c.ctx.Done()
	c.interfaces = sync.OnceValue(func() []netaddr.Interface {
		ifs, _ := netaddr.Host() // without, the order in which peers publish theirs stands
		return ifs
	})
	c.events.Spawn = c.wg.Go
	c.joins = joinTable{Namespace: p.id.Proc.Namespace, Size: p.id.Size, Ended: c.hasEnded,
		Early: func(r request) bool { return r.relayed }}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	return c
}

// take makes c the place's client.
func (c *client) take() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.isolated(); err != nil {
		return err
	}
	if c.open != nil {
		return fmt.Errorf("%w: %s: this process has an open client already", framework.ErrConfig, component)
	}
	c.open = c
	return nil
}

// begun lets others in.
func (c *client) begun() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ev := range c.dead {
		c.events.Add(c.event(ev))
	}
	c.accepting(true)
	if c.unix != nil {
		c.wg.Go(func() { c.accept(c.unix) })
	}
	if c.node != nil {
		c.wg.Go(func() { c.accept(c.node) })
	}
	if c.tcp != nil {
		c.wg.Go(func() { c.accept(c.tcp) })
	}
	c.wg.Go(c.watchHosts)
	if c.processTimeout > 0 {
		c.wg.Go(func() { queries.Run(c.processTimeout, c.done, c.query) })
	}
}

// watch has f called for what the launcher hears, if it can.
func (c *client) watch(f func(bootstrap.Event)) {
	if w, ok := framework.As[Watcher](c.launcher); ok {
		w.Watch(f)
	}
}

func (c *client) Identity() bootstrap.Identity { return c.id }

// Close says goodbye to all who are connected, and leaves the sockets open, on which
// nobody answers until the process opens a client again.
func (c *client) Close() error {
	c.lastWords()
	ways, ok := c.finish(func(l *link) { l.end(frameOf(wire.Goodbye, 0, wire.Empty{})) })
	if !ok {
		return closedError("Close") // and the launcher may have another watcher by now
	}
	c.watch(nil)
	// Who has heard it says so by closing.
	for _, l := range ways {
		time.AfterFunc(closeGrace, l.dropFlushed)
	}
	c.wg.Wait()
	if n := c.dropped.Load(); n > 0 {
		c.log.Debug("bootstrap meet: notes dropped", "count", n)
	}
	c.learnBook()
	c.mu.Lock()
	c.open = nil
	c.mu.Unlock()
	return c.launcher.Close()
}

// Crash ends the process's client and its place as the end of the process would: without
// a goodbye, and nobody listens any more. It is for tests that have several processes in
// one program; after Close it gives back what outlasts a client.
func (c *client) Crash() error {
	c.leave()
	if _, ok := c.finish((*link).drop); !ok {
		return nil
	}
	c.watch(nil)
	c.wg.Wait()
	return nil
}

// finish ends all calls and attempts, and has each connection ended by f.
func (c *client) finish(f func(*link)) (ways []*link, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, false
	}
	c.closed = true
	c.answers.end(closedError("Close during the call"))
	clear(c.own.pending)
	c.put.Forget()
	for l := range c.links {
		ways = append(ways, l)
		f(l)
	}
	c.stop()
	c.accepting(false)
	c.events.Stop()
	return ways, true
}

// after calls f on a goroutine of its own in d, unless the client closes before. The caller
// holds place.mu, and the client is not closed.
func (c *client) after(d time.Duration, f func()) {
	c.wg.Go(func() {
		select {
		case <-time.After(d):
			f()
		case <-c.done:
		}
	})
}

// read serves one connection until it ends.
func (c *client) read(l *link, r *wire.Reader) {
	err := c.readAll(l, r)
	c.mu.Lock()
	quiet := c.closed || l.goodbye || errors.Is(err, io.EOF) || cutOff(err)
	c.mu.Unlock()
	if !quiet {
		c.log.Warn("bootstrap meet: connection closed", "peer", c.procName(l.rank), "error", err)
	}
	// A peer that has closed waits until this end closes too, and may then come again: what
	// still waits here on its behalf is withdrawn before.
	defer l.drop()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lose(l)
}

func (c *client) readAll(l *link, r *wire.Reader) error {
	for {
		m, err := r.Next()
		if err != nil {
			return err
		}
		l.queries.Received()
		if m.Kind == wire.Goodbye {
			c.mu.Lock()
			l.goodbye = true
			c.mu.Unlock()
			return io.EOF
		}
		if c.ctx.Err() != nil || l.expelled.Load() {
			continue // to the peer's end, so that it finds what was sent last
		}
		if err := c.serve(l, m); err != nil {
			return fmt.Errorf("message of kind %d: %w", m.Kind, err)
		}
	}
}

// frameOf encodes what has no variable part, or was checked before.
func frameOf(k wire.Kind, id uint64, body any) []byte {
	f, err := wire.Encode(k, id, body)
	if err != nil {
		panic(err)
	}
	return f
}
