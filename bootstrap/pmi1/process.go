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
	"github.com/ferrympi/ferry/bootstrap/mesh"
	"github.com/ferrympi/ferry/bootstrap/pmi1/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// process is the state of this process at its PMI-1 server. It outlives clients, because the server
// accepts one connection of a process. After finalize the descriptor is closed, and only the
// entries remain.
type process struct {
	address serverAddress
	timeout time.Duration
	log     *slog.Logger
	// Closed when connect has returned. The fields below are constant from then on.
	ready chan struct{}

	// Result of connect.
	err  error
	id   bootstrap.Identity
	wire *wire.Client
	// nil in the first processes of a job.
	handOver *mesh.HandOver

	mu    sync.Mutex
	users int
	// The server accepts no further requests.
	isFinalized bool
	// Entries that were found, and that of this process.
	entries map[framework.Proc][]byte

	// Held during calls of watchers.
	watchMu  sync.Mutex
	watchers map[*launcher]func(bootstrap.Event)
	// The server was lost before finalize.
	lostErr error
}

// processes has the process of each server address. A program has one, because its descriptor is
// inherited once. Tests have several, with ports.
var processes = struct {
	sync.Mutex
	at map[string]*process
}{at: map[string]*process{}}

// acquire returns the process of a server address for one more launcher, after connect. The timeout
// and logger of the first call apply. The end of ctx does not end the connection, which is possible
// only once, and a later call finds its result.
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

// isKnown reports whether this program has connected to a server address.
func isKnown(at serverAddress) bool {
	processes.Lock()
	defer processes.Unlock()
	return processes.at[at.key()] != nil
}

// dialTimeout limits the connection to a server's port. The session's timeout does not apply,
// because a launcher that is busy with starting processes may take longer.
const dialTimeout = 10 * time.Second

// connect connects to the server and identifies the process.
func (p *process) connect() {
	defer close(p.ready)
	dialing, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	conn, err := p.address.dial(dialing)
	if err != nil {
		p.err = &framework.TransportError{Component: "bootstrap pmi1", Peer: "the launcher at " + p.address.key(), Op: "connect", Err: err}
		processes.Lock()
		delete(processes.at, p.address.key()) // The server has received no request, so the next call tries again.
		processes.Unlock()
		return
	}
	p.wire = wire.New(conn, p.timeout, p.reportLost)
	if p.err = p.identify(context.Background()); p.err != nil {
		p.wire.Close()
	}
}

// identify requests the identity of this process. Every answer has a deadline.
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
	if p.handOver, err = p.readHandOver(ctx, size); err != nil {
		return err
	}
	p.id = jobIdentity(p.wire.KVSName(), rank, size, p.handOver)
	text, ok, err := p.wire.Get(ctx, mappingKey)
	if broken := p.wire.Err(); broken != nil {
		return broken
	}
	if err == nil && !ok {
		return nil // Servers drop a mapping that is too long for them.
	}
	var nodes bootstrap.NodeMap
	if err == nil {
		nodes, err = mapping.Parse(text, size)
		for i := range nodes {
			nodes[i].First += uint32(p.id.FirstRank)
		}
	}
	id := p.id.OnNode(nodes)
	if err == nil {
		err = p.address.checkMapping(id)
	}
	if err != nil { // The business cards of the processes have their nodes, too.
		p.log.Info("bootstrap pmi1: invalid map of the nodes dropped: the processes of this node are unknown", "error", err)
		return nil
	}
	p.id = id
	return nil
}

// mappingKey is the key of a server's process mapping.
const mappingKey = "PMI_process_mapping"

// checkMapping compares an identity from a mapping with the variables that some servers set.
func (p serverAddress) checkMapping(id bootstrap.Identity) error {
	if p.localSize >= 0 && p.localSize != id.LocalSize || p.localRank >= 0 && p.localRank != id.LocalRank {
		return fmt.Errorf("%s places %d ranks on this node, with this one at %d, but %s is %d and %s is %d",
			mappingKey, id.LocalSize, id.LocalRank, envLocalSize, p.localSize, envLocalRank, p.localRank)
	}
	return nil
}

// reportLost notifies the watchers of the loss of the server.
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

// release removes one launcher. The last one finalizes.
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
		Err: fmt.Errorf("%w: no answer within %v", framework.ErrTimeout, finalizeTimeout),
	})
	defer cancel()
	return p.wire.Finalize(ctx)
}

// finalizeTimeout limits Close, which has no context.
const finalizeTimeout = 10 * time.Second
