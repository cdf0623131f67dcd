package pmi1

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/meet"
	"github.com/ferrympi/ferry/framework"
)

// launcher is what one client has of the process's PMI-1 server: a meet.Launcher.
type launcher struct {
	p      *process
	closed atomic.Bool
}

func (l *launcher) Identity() bootstrap.Identity {
	id := l.p.id
	id.Locals = slices.Clone(id.Locals)
	return id
}

// usable says why the server can't be asked; nil if it can.
func (l *launcher) usable(op, peer string) error {
	if l.closed.Load() {
		return fmt.Errorf("bootstrap pmi1: %s: %w", op, framework.ErrClosed)
	}
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if l.p.finished {
		return &framework.TransportError{Component: "bootstrap pmi1", Peer: peer, Op: op, Err: meet.ErrLauncherLeft}
	}
	return nil
}

// learnt returns what is known of a process without asking.
func (l *launcher) learnt(p framework.Proc) (entry []byte, ok bool) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	entry, ok = l.p.known[p]
	return slices.Clone(entry), ok
}

func (l *launcher) learn(p framework.Proc, entry []byte) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	l.p.known[p] = slices.Clone(entry)
}

// address returns the name under which p's entry is.
func (l *launcher) address(p framework.Proc) string { return addressName(p, l.p.wire.Maxes().Key) }

// Publish implements meet.Launcher. The entry stays when this process says goodbye; a
// second call with the same entry does nothing, with another it is ErrPublished.
func (l *launcher) Publish(ctx context.Context, entry []byte) error {
	const op = "publish the address"
	me := l.p.id.Proc
	if there, ok := l.learnt(me); ok {
		if bytes.Equal(there, entry) {
			return nil
		}
		return fmt.Errorf("bootstrap pmi1: %s of %v: %w, with other bytes", op, me, bootstrap.ErrPublished)
	}
	if len(entry) > meet.MaxEntry {
		return fmt.Errorf("%w: bootstrap pmi1: %s of %v: %d bytes, limit %d", framework.ErrUnsupported, op, me, len(entry), meet.MaxEntry)
	}
	if err := l.usable(op, "the launcher"); err != nil {
		return err
	}
	if err := (book{l.p.wire}).write(ctx, l.address(me), entry); err != nil {
		return err
	}
	l.learn(me, entry)
	return nil
}

// Find implements meet.Launcher. An entry that was found once is not asked for again.
func (l *launcher) Find(ctx context.Context, p framework.Proc) (entry []byte, ok bool, err error) {
	if entry, ok = l.learnt(p); ok {
		return entry, true, nil
	}
	if err := l.usable("find the address", p.String()); err != nil {
		return nil, false, err
	}
	if entry, ok, err = (book{l.p.wire}).read(ctx, l.address(p), meet.MaxEntry); ok {
		l.learn(p, entry)
	}
	return entry, ok, err
}

// Abort implements meet.Launcher: the server ends every process of the job, and
// mpiexec returns status. reason is logged here, since not every server would print it.
func (l *launcher) Abort(ctx context.Context, status int, reason string) error {
	if err := l.usable("abort the job", "the launcher"); err != nil {
		return err
	}
	l.p.log.Error("bootstrap pmi1: the job is aborted", "status", status, "reason", reason)
	return l.p.wire.Abort(ctx, status)
}

// Watch has f called when the server is lost, at once if it is: then mpiexec, or the
// launcher's process on this node, has ended. It hears of nothing else. f must not wait,
// and none is called any more when Watch(nil) has returned.
func (l *launcher) Watch(f func(bootstrap.Event)) {
	l.p.news.Lock()
	defer l.p.news.Unlock()
	if f == nil {
		delete(l.p.watchers, l)
		return
	}
	l.p.watchers[l] = f
	if l.p.lost != nil {
		f(l.p.lostEvent())
	}
}

// Close implements meet.Launcher. With the last one that is open the process says
// goodbye to its server, for good; it waits for the answer, and returns ErrTransport when
// there is none.
func (l *launcher) Close() error {
	if l.closed.Swap(true) {
		return fmt.Errorf("bootstrap pmi1: close: %w", framework.ErrClosed)
	}
	l.Watch(nil)
	return l.p.leave()
}
