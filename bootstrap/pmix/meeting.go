package pmix

import (
	"context"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/meet"
)

// meeting returns the client that meets others by what l has.
func meeting(ctx context.Context, env bootstrap.Env, l meet.Launcher) (bootstrap.Client, error) {
	return meet.Open(ctx, env, l)
}
