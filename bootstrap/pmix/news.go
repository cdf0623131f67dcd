package pmix

import (
	"context"
	"fmt"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/pmixc"
)

// watched are the events that are asked for: each code by itself, because a handler for
// all of them does not get all. Open MPI's mpirun sends none of a death; Slurm ends the
// step instead; PRRTE, and the server of our tests, do. We never send any: that wedges
// mpirun, and ends a step of Slurm's.
var watched = []pmixc.Status{
	pmixc.LostConnection, pmixc.ProcAborted, pmixc.ProcUnsynced, pmixc.ProcKilled, pmixc.ProcExitNonzero,
}

// watch asks for news. A server that has none to give is no error.
func (p *process) watch(ctx context.Context) error {
	for _, code := range watched {
		if err := p.lib.Watch(ctx, code); err != nil && !pmixc.Is(err, pmixc.NotSupported) {
			return fmt.Errorf("event %d: %w", code, err)
		}
	}
	return nil
}

// news takes what has come.
func (p *process) news() {
	for {
		e, ok := p.lib.Next()
		if !ok {
			return
		}
		p.mu.Lock()
		p.take(e)
		p.mu.Unlock()
	}
}

func (p *process) take(e pmixc.Event) {
	who := framework.Proc{Namespace: e.Proc.Namespace, Rank: e.Proc.Rank}
	switch {
	case e.Code != pmixc.LostConnection:
		if e.Proc.Namespace != "" {
			p.dead[who] = fmt.Sprintf("the launcher says %s (%d)", p.lib.Text(e.Code), e.Code)
		}
	case who == p.id.Proc || who.Namespace != p.id.Proc.Namespace: // our own connection
		p.lost = true
	}
}
