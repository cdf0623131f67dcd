package pmix

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/meet"
	"github.com/ferrympi/ferry/framework"
)

// key is what a process's entry is put under.
const entryKey = "ferry.entry"

// launcher is a meet.Launcher. Every launcher of a process is the same but for its end.
type launcher struct {
	*process
	isClosed atomic.Bool
	log      *slog.Logger
}

var (
	_ meet.Launcher        = (*launcher)(nil)
	_ meet.Watcher         = (*launcher)(nil)
	_ bootstrap.PsetSource = (*launcher)(nil)
	_ bootstrap.NodeMapper = (*launcher)(nil)
)

func (l *launcher) Identity() bootstrap.Identity { return l.id }

// usable returns why the server can't be asked.
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
		return &framework.TransportError{Component: componentName, Peer: serverName(), Op: op, Err: meet.ErrLauncherLeft}
	}
	return nil
}

// Publish puts the entry. Servers keep copies, so that a second entry would reach some and
// not others. What PMIx calls publishing is not used: Slurm has none, and others take a
// name twice, and let nobody but its owner withdraw it.
func (l *launcher) Publish(ctx context.Context, entry []byte) error {
	const op = "publish"
	if len(entry) > meet.MaxEntry {
		return fmt.Errorf("%w: %s: an entry of %d bytes: the limit is %d", framework.ErrUnsupported, componentName, len(entry), meet.MaxEntry)
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

// Abort has the launcher end the job. It does nothing after the process has finalized.
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

// Close finalizes if this is the process's last launcher, and then takes up to
// finalizeTimeout. A second one is ErrClosed.
func (l *launcher) Close() error {
	if l.isClosed.Swap(true) {
		return fmt.Errorf("%s: close: %w", componentName, framework.ErrClosed)
	}
	return l.release()
}
