package pmix

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ferrympi/ferry/bootstrap/mesh"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/pmixc"
)

// searchTimeout limits a search for an entry on another node, before it is repeated, and so the
// wait of Close for it. Find waits for searchGrace of that, because an existing entry arrives
// within a millisecond.
const (
	searchTimeout = time.Second
	searchGrace   = 20 * time.Millisecond
)

// maxSearches leaves calls of libpmix for other purposes.
const maxSearches = pmixc.MaxCalls / 2

// search is a request for an entry to the server of another node. A failed one remains until a Find
// has returned its error.
type search struct {
	// Closed at the end.
	done chan struct{}
	// Error of the end, except that there is no entry.
	err error
}

// Find requests the entry from the server of this node, which has those of its own processes, and
// those that processes of this node have requested before (PMIX_IMMEDIATE). It does not ask servers
// of other nodes. So for a process that may be on another node a search continues in the
// background, and a later Find returns its result.
//
// In an added process it finds those that were started together, and no others.
//
// Without PMIX_IMMEDIATE a Get of a missing value takes two seconds to fail.
func (l *launcher) Find(ctx context.Context, p framework.Proc) (entry []byte, ok bool, err error) {
	op := fmt.Sprintf("find the entry of %v", p)
	if e, ok := l.knownEntry(p); ok && !l.isClosed.Load() {
		return e, true, nil
	}
	if err := l.checkUsable(op); err != nil {
		return nil, false, err
	}
	if _, ok := l.serverProc(p); !ok {
		return nil, false, nil
	}
	err = l.getEntry(ctx, p, 0)
	if isNotFound(err) && !l.isHere(p) {
		err = l.awaitSearch(ctx, p)
	}
	if e, ok := l.knownEntry(p); ok {
		return e, true, nil
	}
	if err != nil && !isNotFound(err) {
		return nil, false, callError(ctx, op, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if how, ok := l.failures[p]; ok { // It died without an entry.
		return nil, false, fmt.Errorf("%s: %s: %w: %s", componentName, op, framework.ErrProcFailed, how)
	}
	return nil, false, nil
}

// knownEntry returns an entry that was found before.
func (p *process) knownEntry(proc framework.Proc) ([]byte, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, ok := p.entries[proc]
	return slices.Clone(e), ok
}

// isHere reports whether proc is known to be on this node.
func (p *process) isHere(proc framework.Proc) bool {
	_, ok := slices.BinarySearch(p.id.LocalRanks, proc.Rank)
	return ok && proc.Namespace == p.id.Proc.Namespace
}

// getEntry requests an entry, and keeps it. wait applies to servers of other nodes, and 0 asks the
// server of this node only.
func (p *process) getEntry(ctx context.Context, proc framework.Proc, wait time.Duration) error {
	limited, cancel := withTimeout(ctx, wait+callTimeout)
	defer cancel()
	at, _ := p.serverProc(proc)
	v, err := p.lib.Get(limited, at, entryKey, wait)
	if err != nil {
		return err
	}
	if v.Kind != pmixc.KindText || len(v.Bytes) > mesh.MaxEntry {
		return fmt.Errorf("its value is not an entry: type %d, %d bytes", v.Type, len(v.Bytes))
	}
	p.mu.Lock()
	p.entries[proc] = v.Bytes
	p.mu.Unlock()
	return nil
}

// awaitSearch waits for up to searchGrace for a search, which it starts if there is none. It
// returns the error of a failed search.
func (p *process) awaitSearch(ctx context.Context, proc framework.Proc) error {
	s := p.startSearch(proc)
	if s == nil {
		return nil
	}
	grace := time.NewTimer(searchGrace)
	defer grace.Stop()
	select {
	case <-s.done:
	case <-grace.C:
		return nil
	case <-ctx.Done():
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.searches[proc] == s {
		delete(p.searches, proc)
	}
	return s.err
}

// startSearch returns the search for an entry, which it starts if there is none, or nil if there
// are too many.
func (p *process) startSearch(proc framework.Proc) *search {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.searches[proc]; s != nil {
		return s
	}
	if p.isFinalized || len(p.searches) >= maxSearches {
		return nil
	}
	s := &search{done: make(chan struct{})}
	p.searches[proc] = s
	go func() { // It outlives the Find, and ends with the server's answer or at its limit.
		err := p.getEntry(context.Background(), proc, searchTimeout)
		p.mu.Lock()
		defer p.mu.Unlock()
		if err == nil || isNotFound(err) {
			delete(p.searches, proc)
		} else {
			s.err = err
		}
		close(s.done)
	}()
	return s
}
