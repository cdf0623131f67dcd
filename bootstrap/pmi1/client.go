package pmi1

import (
	"context"
	"fmt"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/meet"
	"github.com/ferrympi/ferry/framework"
)

// client returns the client that meets others by what l has: meet.Open(ctx, env, l).
func client(_ context.Context, _ bootstrap.Env, _ meet.Launcher) (bootstrap.Client, error) {
	return nil, fmt.Errorf("%w: bootstrap pmi1: this version of ferry has no meeting service", framework.ErrUnsupported)
}
