package pmi1

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/mesh"
	"github.com/ferrympi/ferry/framework"
)

// launcher is a mesh.Launcher over the process's PMI-1 server for one client.
type launcher struct {
	proc     *process
	isClosed atomic.Bool
}

func (l *launcher) Identity() bootstrap.Identity {
	id := l.proc.id
	id.LocalRanks = slices.Clone(id.LocalRanks)
	return id
}

// checkUsable returns the reason if requests to the server are impossible.
func (l *launcher) checkUsable(op, peer string) error {
	if l.isClosed.Load() {
		return fmt.Errorf("bootstrap pmi1: %s: %w", op, framework.ErrClosed)
	}
	l.proc.mu.Lock()
	defer l.proc.mu.Unlock()
	if l.proc.isFinalized {
		return &framework.TransportError{Component: "bootstrap pmi1", Peer: peer, Op: op, Err: mesh.ErrLauncherLeft}
	}
	return nil
}

// knownEntry returns an entry without a request.
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

// entryName returns the name of p's entry.
func (l *launcher) entryName(p framework.Proc) string {
	return addressName(p, l.proc.wire.Limits().Key)
}

// Publish implements mesh.Launcher. The entry remains when this process finalizes. A second call
// with the same entry has no effect, and with another one it is ErrPublished. The entry of an added
// process stays in this process.
func (l *launcher) Publish(ctx context.Context, entry []byte) error {
	const op = "publish the address"
	me := l.proc.id.Proc
	if there, ok := l.knownEntry(me); ok {
		if bytes.Equal(there, entry) {
			return nil
		}
		return fmt.Errorf("bootstrap pmi1: %s of %v: %w, with other bytes", op, me, bootstrap.ErrPublished)
	}
	if len(entry) > mesh.MaxEntry {
		return fmt.Errorf("%w: bootstrap pmi1: %s of %v: %d bytes, limit %d", framework.ErrUnsupported, op, me, len(entry), mesh.MaxEntry)
	}
	if l.proc.handOver != nil {
		l.recordEntry(me, entry)
		return nil
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

// Find implements mesh.Launcher. Each entry is requested until it is found once.
func (l *launcher) Find(ctx context.Context, p framework.Proc) (entry []byte, ok bool, err error) {
	if entry, ok = l.knownEntry(p); ok {
		return entry, true, nil
	}
	if err := l.checkUsable("find the address", p.String()); err != nil {
		return nil, false, err
	}
	if entry, ok, err = (nameService{l.proc.wire}).lookUp(ctx, l.entryName(p), mesh.MaxEntry); ok {
		l.recordEntry(p, entry)
	}
	return entry, ok, err
}

// Abort implements mesh.Launcher. The server ends every process of the job, and mpiexec returns
// status. The reason is logged here, because some servers do not print it.
func (l *launcher) Abort(ctx context.Context, status int, reason string) error {
	if err := l.checkUsable("abort the job", "the launcher"); err != nil {
		return err
	}
	l.proc.log.Error("bootstrap pmi1: the job is aborted", "status", status, "reason", reason)
	return l.proc.wire.Abort(ctx, status)
}

// Watch sets the callback for the loss of the server, which is called at once if the server is
// lost. mpiexec, or the launcher's process on this node, has then ended. There are no other events.
// f must not block, and there are no calls after Watch(nil) has returned.
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

// Close implements mesh.Launcher. The last open launcher finalizes for the rest of the process. It
// waits for the answer, and returns ErrTransport without one.
func (l *launcher) Close() error {
	if l.isClosed.Swap(true) {
		return fmt.Errorf("bootstrap pmi1: close: %w", framework.ErrClosed)
	}
	l.Watch(nil)
	return l.proc.release()
}
