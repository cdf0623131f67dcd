package pmi1

import (
	"context"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/meet"
)

// client returns the client that meets others by what l has.
func client(ctx context.Context, env bootstrap.Env, l meet.Launcher) (bootstrap.Client, error) {
	return meet.Open(ctx, env, l)
}
