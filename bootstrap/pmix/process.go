package pmix

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/mesh"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/pmixc"
)

// Limits for the server. It answers within a millisecond, except on a machine that is starting many
// processes.
const (
	initTimeout     = 10 * time.Second // To connect.
	callTimeout     = 10 * time.Second // To answer a call.
	finalizeTimeout = 5 * time.Second
)

// process is the state of this process at its PMIx server. libpmix has one per operating-system
// process.
type process struct {
	lib *pmixc.Library
	// Identity at the server.
	self pmixc.Proc
	id   bootstrap.Identity
	// Hand-over of an added process.
	handOver mesh.HandOver
	isAdded  bool

	mu sync.Mutex
	// Number of open launchers.
	launchers    int
	isFinalized  bool
	isServerLost bool
	// Entries that were found.
	entries map[framework.Proc][]byte
	// Failed processes, with the reason.
	failures map[framework.Proc]string
	searches map[framework.Proc]*search
	psets    psets
	nodes    nodeMap
	// Processes that this process has started.
	spawnedJobs []spawnedJob
	// Calls of Spawn that have not returned, and the deaths of unknown processes since then, which
	// may be started by one of the calls.
	pendingSpawns   int
	unclaimedDeaths []pmixc.Event
	// Ends the watch. nil if there is none.
	stopWatch func()

	// Held during calls of the watcher. Locked before mu.
	watchMu sync.Mutex
	watcher func(bootstrap.Event)
}

// current is the process, once a launcher was opened. initErr is the reason if there cannot be one.
// processLock guards both, and can be waited for with a context.
var (
	current     *process
	initErr     error
	processLock = make(chan struct{}, 1)
)

// openLauncher returns a launcher. The first one of the process connects to the server.
func openLauncher(ctx context.Context, p *Params) (*launcher, error) {
	select {
	case processLock <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-processLock }()
	if initErr != nil {
		return nil, initErr
	}
	if current == nil {
		lib, err := load(ctx, p.Library)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", componentName, err)
		}
		if current, err = initialize(ctx, lib, p.HandOver); err != nil {
			return nil, err
		}
	}
	current.mu.Lock()
	defer current.mu.Unlock()
	current.launchers++
	return &launcher{process: current, log: slog.New(slog.DiscardHandler)}, nil
}

// initialize connects to the server and identifies the process. handOver is the parameter.
func initialize(ctx context.Context, lib *pmixc.Library, handOver string) (*process, error) {
	limited, cancel := withTimeout(ctx, initTimeout)
	defer cancel()
	if err := checkReachable(limited, serverURI(os.Getenv)); err != nil {
		return nil, callError(ctx, "connect", err)
	}
	me, err := lib.Init(limited)
	if err != nil {
		if isServerGone(err) {
			err = noServerError(err)
		}
		err = callError(ctx, "connect", err)
		if limited.Err() != nil { // It may still succeed, which is possible only once.
			recordInitFailure(err)
		}
		return nil, err
	}
	p := &process{
		lib: lib, self: me,
		nodes:   newNodeMap(),
		entries: map[framework.Proc][]byte{}, failures: map[framework.Proc]string{}, searches: map[framework.Proc]*search{},
	}
	if err = p.identify(limited, handOver); err == nil {
		err = p.registerEvents(limited)
	}
	if err != nil {
		err = errors.Join(callError(ctx, "identify the process", err), p.finalize())
		recordInitFailure(err)
		return nil, err
	}
	return p, nil
}

// recordInitFailure records that libpmix is, or may be, initialized without a launcher.
func recordInitFailure(err error) {
	initErr = &framework.TransportError{Component: componentName, Peer: serverName(), Op: "connect", Err: fmt.Errorf(
		"a process can initialize libpmix only once, and this one failed to: %v", err)}
}

// release removes one launcher. The last one finalizes.
func (p *process) release() error {
	processLock <- struct{}{} // Held until the end of finalization.
	defer func() { <-processLock }()
	p.mu.Lock()
	p.launchers--
	last := p.launchers == 0 && !p.isFinalized
	p.isFinalized = p.isFinalized || last
	isServerLost := p.isServerLost
	p.mu.Unlock()
	if !last {
		return nil
	}
	p.stopWatching()
	if isServerLost { // The server is lost.
		return nil
	}
	ctx, cancel := withTimeout(context.Background(), finalizeTimeout)
	defer cancel()
	p.preloadNodeMap(ctx)
	return p.finalize()
}

// finalize finalizes libpmix. It waits for calls in progress.
func (p *process) finalize() error {
	ctx, cancel := withTimeout(context.Background(), finalizeTimeout)
	defer cancel()
	if err := p.lib.Finalize(ctx); err != nil && !isServerGone(err) {
		return callError(context.Background(), "finalize", err)
	}
	return nil
}

// withTimeout adds a deadline to a context.
func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("%w: no answer within %v", framework.ErrTimeout, d))
}

// callError returns the error of a failed call. If the context of the caller has ended, it is that
// of the context.
func callError(ctx context.Context, op string, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return fmt.Errorf("%s: %s with %s: %w", componentName, op, serverName(), err)
	}
	return &framework.TransportError{Component: componentName, Peer: serverName(), Op: op, Err: err}
}

// isServerGone reports whether an error means that the server is lost.
func isServerGone(err error) bool {
	return pmixc.Is(err, pmixc.Unreachable) || pmixc.Is(err, pmixc.LostConnection)
}
