package pmix

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ferrympi/ferry/bootstrap/meet"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/pmixc"
)

// How long a search for an entry on another node lasts before it is begun again, which
// is also how long Close may have to wait for it; and how much of that a Find waits
// itself: an entry that is there comes within a millisecond.
const (
	searchTimeout = time.Second
	searchGrace   = 20 * time.Millisecond
)

// maxSearches leaves calls of libpmix to others.
const maxSearches = pmixc.MaxCalls / 2

// search is a request for an entry to the server of another node. One that has failed
// stays until a Find has said so.
type search struct {
	done chan struct{} // closed at the end
	err  error         // of that end, unless it is that there is nothing
}

// Find asks the server of this node, who knows what its own processes have put, and what
// others of this node have asked about before (PMIX_IMMEDIATE). That one does not ask other
// nodes' servers, so that for a process that is not known to be here a search does, on the
// side: an answer is there with a later Find, if it is not there soon.
//
// Without PMIX_IMMEDIATE a Get of what is not there takes two seconds to fail, and the
// caller would wait for the other process.
func (l *launcher) Find(ctx context.Context, p framework.Proc) (entry []byte, ok bool, err error) {
	op := fmt.Sprintf("find the entry of %v", p)
	if e, ok := l.knownEntry(p); ok && !l.isClosed.Load() {
		return e, true, nil
	}
	if err := l.checkUsable(op); err != nil {
		return nil, false, err
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
	if how, ok := l.failures[p]; ok { // without having put one
		return nil, false, fmt.Errorf("%s: %s: %w: %s", componentName, op, framework.ErrProcFailed, how)
	}
	return nil, false, nil
}

// found returns what was found before.
func (p *process) knownEntry(proc framework.Proc) ([]byte, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, ok := p.entries[proc]
	return slices.Clone(e), ok
}

// isHere reports whether proc is known to be on this node.
func (p *process) isHere(proc framework.Proc) bool {
	_, ok := slices.BinarySearch(p.id.Locals, proc.Rank)
	return ok && proc.Namespace == p.id.Proc.Namespace
}

// ask gets an entry, and keeps it. wait is for servers of other nodes; 0 asks this one.
func (p *process) getEntry(ctx context.Context, proc framework.Proc, wait time.Duration) error {
	limited, cancel := withTimeout(ctx, wait+callTimeout)
	defer cancel()
	v, err := p.lib.Get(limited, pmixc.Proc{Namespace: proc.Namespace, Rank: proc.Rank}, entryKey, wait)
	if err != nil {
		return err
	}
	if v.Kind != pmixc.KindText || len(v.Bytes) > meet.MaxEntry {
		return fmt.Errorf("what it has put is not an entry: type %d, %d bytes", v.Type, len(v.Bytes))
	}
	p.mu.Lock()
	p.entries[proc] = v.Bytes
	p.mu.Unlock()
	return nil
}

// seek waits a little for a search, which it begins if there is none. It returns why that
// has failed.
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

// startSearch returns the search for an entry, a new one if there is none; nil if there are
// too many.
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
	go func() { // it outlives the Find, and ends with the server's answer or its time
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
