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
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/pmixc"
)

// How long the server may take. It answers within a millisecond; a machine that is
// starting many processes may take longer.
const (
	initTimeout     = 10 * time.Second // to be connected to
	callTimeout     = 10 * time.Second // to answer a call
	finalizeTimeout = 5 * time.Second
)

// process is this process's part in PMIx. libpmix knows one of it in a process, whatever
// else in that process uses libpmix, so that there is one here.
type process struct {
	lib *pmixc.Library
	id  bootstrap.Identity

	mu           sync.Mutex
	launchers    int                       // launchers
	isFinalized  bool                      // finalized
	isServerLost bool                      // the server has gone
	entries      map[framework.Proc][]byte // what was found
	failures     map[framework.Proc]string // who has failed, and how
	searches     map[framework.Proc]*search
	psets        psets
	nodes        nodeMap
	stopWatch    func() // ends the watch; nil: there is none

	watchMu sync.Mutex // held while the watcher is told; taken before mu
	watcher func(bootstrap.Event)
}

// this is the process, from its first launcher on; spoiled is why there can't be one any
// more. door is their lock, one that can be waited for with a context.
var (
	current     *process
	initErr     error
	processLock = make(chan struct{}, 1)
)

// attach returns a launcher. The first one of the process connects to the server.
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
		if current, err = initialize(ctx, lib); err != nil {
			return nil, err
		}
	}
	current.mu.Lock()
	defer current.mu.Unlock()
	current.launchers++
	return &launcher{process: current, log: slog.New(slog.DiscardHandler)}, nil
}

// initialize connects to the server, and asks it who this process is.
func initialize(ctx context.Context, lib *pmixc.Library) (*process, error) {
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
		if limited.Err() != nil { // it may still succeed, once
			recordInitFailure(err)
		}
		return nil, err
	}
	p := &process{
		lib:     lib,
		nodes:   newNodeMap(),
		entries: map[framework.Proc][]byte{}, failures: map[framework.Proc]string{}, searches: map[framework.Proc]*search{},
	}
	if p.id, err = identify(limited, lib, me); err == nil {
		err = p.registerEvents(limited)
	}
	if err != nil {
		err = errors.Join(callError(ctx, "learn of the job", err), p.finalize())
		recordInitFailure(err)
		return nil, err
	}
	return p, nil
}

// spoil is for a process that libpmix knows, or may come to know, and that has no launcher.
func recordInitFailure(err error) {
	initErr = &framework.TransportError{Component: componentName, Peer: serverName(), Op: "connect", Err: fmt.Errorf(
		"a process can initialise libpmix only once, and this one failed to: %v", err)}
}

// detach is the end of a launcher. With the last one the process is done.
func (p *process) release() error {
	processLock <- struct{}{} // for as long as finalizing takes
	defer func() { <-processLock }()
	p.mu.Lock()
	p.launchers--
	last := p.launchers == 0 && !p.isFinalized
	p.isFinalized = p.isFinalized || last
	gone := p.isServerLost
	p.mu.Unlock()
	if !last {
		return nil
	}
	p.stopWatching()
	if gone { // there is nobody to tell
		return nil
	}
	ctx, cancel := withTimeout(context.Background(), finalizeTimeout)
	defer cancel()
	p.preloadNodeMap(ctx)
	return p.finalize()
}

// finalize tells the server that this process is done. It waits for calls in progress.
func (p *process) finalize() error {
	ctx, cancel := withTimeout(context.Background(), finalizeTimeout)
	defer cancel()
	if err := p.lib.Finalize(ctx); err != nil && !isServerGone(err) {
		return callError(context.Background(), "finalize", err)
	}
	return nil
}

// limit gives a call a deadline of its own.
func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("%w: no answer within %v", framework.ErrTimeout, d))
}

// failed says what has failed: the server, or, if the caller's context has ended, that.
func callError(ctx context.Context, op string, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return fmt.Errorf("%s: %s with %s: %w", componentName, op, serverName(), err)
	}
	return &framework.TransportError{Component: componentName, Peer: serverName(), Op: op, Err: err}
}

// gone reports whether an error means that there is no server any more.
func isServerGone(err error) bool {
	return pmixc.Is(err, pmixc.Unreachable) || pmixc.Is(err, pmixc.LostConnection)
}
