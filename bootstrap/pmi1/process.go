package pmi1

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/mapping"
	"github.com/ferrympi/ferry/bootstrap/pmi1/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// process is what this operating-system process is to its PMI-1 server. It outlives
// clients, because the server talks to a process once: after finalize the descriptor is
// dead, and what was learnt until then has to do.
type process struct {
	address serverAddress
	timeout time.Duration
	log     *slog.Logger
	ready   chan struct{} // closed when begin has ended; what is below is set then

	err  error // why there is no wire-up
	id   bootstrap.Identity
	wire *wire.Client

	mu          sync.Mutex
	users       int
	isFinalized bool                      // finalize has begun: the server serves nobody here any more
	entries     map[framework.Proc][]byte // entries: what was found, and what this process has published

	watchMu  sync.Mutex // held during calls of watchers
	watchers map[*launcher]func(bootstrap.Event)
	lostErr  error // the server has gone before this process said goodbye
}

// processes holds one process for each place. There is one in a program: its descriptor
// is inherited once, whoever opens clients. Tests have more, by port.
var processes = struct {
	sync.Mutex
	at map[string]*process
}{at: map[string]*process{}}

// enter returns the process at a place, with one user more, when the server has said who
// it is. The first caller's timeout and logger are the ones that count. A ctx that ends
// does not end the conversation, which can't be had twice: a later call finds its result.
func acquire(ctx context.Context, at serverAddress, env bootstrap.Env) (*process, error) {
	processes.Lock()
	p := processes.at[at.key()]
	if p == nil {
		p = &process{
			address: at, timeout: cmp.Or(env.Timeout, bootstrap.DefaultTimeout), log: env.Logger,
			ready: make(chan struct{}), entries: map[framework.Proc][]byte{}, watchers: map[*launcher]func(bootstrap.Event){},
		}
		if p.log == nil {
			p.log = slog.New(slog.DiscardHandler)
		}
		processes.at[at.key()] = p
		go p.connect()
	}
	processes.Unlock()
	select {
	case <-p.ready:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if p.err != nil {
		return nil, p.err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users++
	return p, nil
}

// visited reports whether a place has been spoken to.
func isKnown(at serverAddress) bool {
	processes.Lock()
	defer processes.Unlock()
	return processes.at[at.key()] != nil
}

// dialTimeout limits connecting to a server's port. The session's timeout, which is for what other
// processes have to do, does not: a launcher that is busy starting them may take longer.
const dialTimeout = 10 * time.Second

// begin makes the process known to its server.
func (p *process) connect() {
	defer close(p.ready)
	dialing, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	conn, err := p.address.dial(dialing)
	if err != nil {
		p.err = &framework.TransportError{Component: "bootstrap pmi1", Peer: "the launcher at " + p.address.key(), Op: "connect", Err: err}
		processes.Lock()
		delete(processes.at, p.address.key()) // nothing was said: the next call tries again
		processes.Unlock()
		return
	}
	p.wire = wire.New(conn, p.timeout, p.reportLost)
	if p.err = p.identify(context.Background()); p.err != nil {
		p.wire.Close()
	}
}

// greet learns who this process is. Every answer has a deadline.
func (p *process) identify(ctx context.Context) (err error) {
	rank, size := p.address.rank, p.address.size
	if p.address.fd < 0 {
		if rank, size, err = p.wire.Identify(ctx, p.address.pmiID); err != nil {
			return err
		}
	}
	if err := p.wire.Init(ctx); err != nil {
		return err
	}
	p.id = bootstrap.Identity{Proc: framework.Proc{Namespace: p.wire.KVSName(), Rank: uint32(rank)}, Size: size}
	text, ok, err := p.wire.Get(ctx, mappingKey)
	if broken := p.wire.Err(); broken != nil {
		return broken
	}
	if err == nil && !ok {
		return nil // servers drop a mapping that is too long for them
	}
	var nodes bootstrap.NodeMap
	if err == nil {
		nodes, err = mapping.Parse(text, size)
	}
	id := p.id.OnNode(nodes)
	if err == nil {
		err = p.address.checkMapping(id)
	}
	if err != nil { // The cards of the processes have their nodes, too.
		p.log.Info("bootstrap pmi1: the map of the nodes is dropped, and the processes of this node are not known", "error", err)
		return nil
	}
	p.id = id
	return nil
}

// mappingKey is the key of a server's process mapping.
const mappingKey = "PMI_process_mapping"

// agrees compares an identity from a mapping with the variables that some servers set.
func (p serverAddress) checkMapping(id bootstrap.Identity) error {
	if p.localSize >= 0 && p.localSize != id.LocalSize || p.localRank >= 0 && p.localRank != id.LocalRank {
		return fmt.Errorf("%s places %d ranks on this node, with this one at %d, but %s is %d and %s is %d",
			mappingKey, id.LocalSize, id.LocalRank, envLocalSize, p.localSize, envLocalRank, p.localRank)
	}
	return nil
}

// lose tells the watchers that the server is gone.
func (p *process) reportLost(err error) {
	p.watchMu.Lock()
	defer p.watchMu.Unlock()
	p.lostErr = err
	for _, f := range p.watchers {
		f(p.lostEvent())
	}
}

func (p *process) lostEvent() bootstrap.Event {
	return bootstrap.Event{Kind: bootstrap.ServerLost, Reason: "the connection to the PMI-1 server broke: " + p.lostErr.Error()}
}

// leave takes one user away. With the last one the conversation with the server ends.
func (p *process) release() error {
	p.mu.Lock()
	p.users--
	last := p.users == 0 && !p.isFinalized
	p.isFinalized = p.isFinalized || last
	p.mu.Unlock()
	if !last {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), finalizeTimeout, &framework.TransportError{
		Component: "bootstrap pmi1", Peer: "the launcher", Op: "finalize",
		Err: fmt.Errorf("%w: it is not done within %v", framework.ErrTimeout, finalizeTimeout),
	})
	defer cancel()
	return p.wire.Finalize(ctx)
}

// finalizeTimeout limits Close, which has no context of its caller's, when the time for an
// answer is longer.
const finalizeTimeout = 10 * time.Second
