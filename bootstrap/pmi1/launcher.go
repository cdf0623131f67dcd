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
	proc     *process
	isClosed atomic.Bool
}

func (l *launcher) Identity() bootstrap.Identity {
	id := l.proc.id
	id.Locals = slices.Clone(id.Locals)
	return id
}

// usable says why the server can't be asked; nil if it can.
func (l *launcher) checkUsable(op, peer string) error {
	if l.isClosed.Load() {
		return fmt.Errorf("bootstrap pmi1: %s: %w", op, framework.ErrClosed)
	}
	l.proc.mu.Lock()
	defer l.proc.mu.Unlock()
	if l.proc.isFinalized {
		return &framework.TransportError{Component: "bootstrap pmi1", Peer: peer, Op: op, Err: meet.ErrLauncherLeft}
	}
	return nil
}

// learnt returns what is known of a process without asking.
func (l *launcher) knownEntry(p framework.Proc) (entry []byte, ok bool) {
	l.proc.mu.Lock()
	defer l.proc.mu.Unlock()
	entry, ok = l.proc.entries[p]
	return slices.Clone(entry), ok
}

func (l *launcher) recordEntry(p framework.Proc, entry []byte) {
	l.proc.mu.Lock()
	defer l.proc.mu.Unlock()
	l.proc.entries[p] = slices.Clone(entry)
}

// address returns the name under which p's entry is.
func (l *launcher) entryName(p framework.Proc) string {
	return addressName(p, l.proc.wire.Limits().Key)
}

// Publish implements meet.Launcher. The entry stays when this process says goodbye; a
// second call with the same entry does nothing, with another it is ErrPublished.
func (l *launcher) Publish(ctx context.Context, entry []byte) error {
	const op = "publish the address"
	me := l.proc.id.Proc
	if there, ok := l.knownEntry(me); ok {
		if bytes.Equal(there, entry) {
			return nil
		}
		return fmt.Errorf("bootstrap pmi1: %s of %v: %w, with other bytes", op, me, bootstrap.ErrPublished)
	}
	if len(entry) > meet.MaxEntry {
		return fmt.Errorf("%w: bootstrap pmi1: %s of %v: %d bytes, limit %d", framework.ErrUnsupported, op, me, len(entry), meet.MaxEntry)
	}
	if err := l.checkUsable(op, "the launcher"); err != nil {
		return err
	}
	if err := (nameService{l.proc.wire}).publish(ctx, l.entryName(me), entry); err != nil {
		return err
	}
	l.recordEntry(me, entry)
	return nil
}

// Find implements meet.Launcher. An entry that was found once is not asked for again.
func (l *launcher) Find(ctx context.Context, p framework.Proc) (entry []byte, ok bool, err error) {
	if entry, ok = l.knownEntry(p); ok {
		return entry, true, nil
	}
	if err := l.checkUsable("find the address", p.String()); err != nil {
		return nil, false, err
	}
	if entry, ok, err = (nameService{l.proc.wire}).lookUp(ctx, l.entryName(p), meet.MaxEntry); ok {
		l.recordEntry(p, entry)
	}
	return entry, ok, err
}

// Abort implements meet.Launcher: the server ends every process of the job, and
// mpiexec returns status. reason is logged here, since not every server would print it.
func (l *launcher) Abort(ctx context.Context, status int, reason string) error {
	if err := l.checkUsable("abort the job", "the launcher"); err != nil {
		return err
	}
	l.proc.log.Error("bootstrap pmi1: the job is aborted", "status", status, "reason", reason)
	return l.proc.wire.Abort(ctx, status)
}

// Watch has f called when the server is lost, at once if it is: then mpiexec, or the
// launcher's process on this node, has ended. It hears of nothing else. f must not wait,
// and none is called any more when Watch(nil) has returned.
func (l *launcher) Watch(f func(bootstrap.Event)) {
	l.proc.watchMu.Lock()
	defer l.proc.watchMu.Unlock()
	if f == nil {
		delete(l.proc.watchers, l)
		return
	}
	l.proc.watchers[l] = f
	if l.proc.lostErr != nil {
		f(l.proc.lostEvent())
	}
}

// Close implements meet.Launcher. With the last one that is open the process says
// goodbye to its server, for good; it waits for the answer, and returns ErrTransport when
// there is none.
func (l *launcher) Close() error {
	if l.isClosed.Swap(true) {
		return fmt.Errorf("bootstrap pmi1: close: %w", framework.ErrClosed)
	}
	l.Watch(nil)
	return l.proc.release()
}
