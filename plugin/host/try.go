package host

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/progress"
)

// Try starts the plugin of a component as the only rank of a job does, and stops it. params are the component's. It returns nil for other
// components.
func Try(ctx context.Context, c framework.Component, params any) error {
	p, ok := framework.As[component](c)
	if !ok {
		return nil
	}
	proc := framework.Proc{Namespace: "ferry-try"}
	env := btl.Env{
		Env: progress.Env{
			Identity: bootstrap.Identity{Proc: proc, Size: 1, LocalSize: 1},
			Worlds:   framework.NewWorlds(proc.Namespace),
			Self:     framework.Incarnation{ID: framework.MakeProcID(0, 0), Nonce: rand.Uint64() | 1},
			Engine:   progress.New(progress.Options{}),
			Logger:   slog.New(slog.DiscardHandler),
		},
		Params: params,
	}
	defer env.Engine.Close()
	m, err := p.Open(ctx, env)
	if err != nil {
		return err
	}
	return errors.Join(m.(*module).process.endError(), m.Close())
}
