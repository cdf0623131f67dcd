package pmix

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/mesh"
	"github.com/ferrympi/ferry/framework"
)

// entryKey is the key of a process's entry.
const entryKey = "ferry.entry"

// launcher is a mesh.Launcher. The launchers of a process share everything but their end.
type launcher struct {
	*process
	isClosed atomic.Bool
	log      *slog.Logger
}

var (
	_ mesh.Launcher        = (*launcher)(nil)
	_ mesh.Watcher         = (*launcher)(nil)
	_ mesh.Named           = (*launcher)(nil)
	_ mesh.Spawner         = (*launcher)(nil)
	_ mesh.Added           = (*launcher)(nil)
	_ bootstrap.PsetSource = (*launcher)(nil)
	_ bootstrap.NodeMapper = (*launcher)(nil)
)

func (l *launcher) Identity() bootstrap.Identity { return l.id }

// checkUsable returns the reason if requests to the server are impossible.
func (l *launcher) checkUsable(op string) error {
	if l.isClosed.Load() {
		return fmt.Errorf("%s: %s: %w", componentName, op, framework.ErrClosed)
	}
	l.deliverEvents()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.isServerLost:
		return &framework.TransportError{Component: componentName, Peer: serverName(), Op: op, Err: errors.New("the connection is lost")}
	case l.isFinalized:
		return &framework.TransportError{Component: componentName, Peer: serverName(), Op: op, Err: mesh.ErrLauncherLeft}
	}
	return nil
}

// Publish puts the entry, once. Servers keep copies, so a second entry would reach only some of
// them. PMIx's publish is not used, because Slurm has none, and other servers accept a name twice
// and let only its owner withdraw it.
func (l *launcher) Publish(ctx context.Context, entry []byte) error {
	const op = "publish"
	if len(entry) > mesh.MaxEntry {
		return fmt.Errorf("%w: %s: an entry of %d bytes: the limit is %d", framework.ErrUnsupported, componentName, len(entry), mesh.MaxEntry)
	}
	if err := l.checkUsable(op); err != nil {
		return err
	}
	limited, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	err := l.lib.Put(limited, entryKey, entry)
	if err == nil {
		err = l.lib.Commit(limited)
	}
	if err != nil {
		return callError(ctx, op, err)
	}
	return nil
}

// Abort ends the job through the launcher. It has no effect after finalization.
func (l *launcher) Abort(ctx context.Context, status int, reason string) error {
	const op = "abort"
	if l.isClosed.Load() {
		return fmt.Errorf("%s: %s: %w", componentName, op, framework.ErrClosed)
	}
	l.mu.Lock()
	done := l.isFinalized
	l.mu.Unlock()
	if done {
		return nil
	}
	limited, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	if err := l.lib.Abort(limited, status, reason); err != nil {
		return callError(ctx, op, err)
	}
	return nil
}

// Close finalizes if this is the process's last launcher, which takes up to finalizeTimeout. A
// second call returns ErrClosed.
func (l *launcher) Close() error {
	if l.isClosed.Swap(true) {
		return fmt.Errorf("%s: close: %w", componentName, framework.ErrClosed)
	}
	return l.release()
}
