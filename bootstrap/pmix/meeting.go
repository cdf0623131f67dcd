package pmix

import (
	"context"
	"fmt"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/meet"
	"github.com/ferrympi/ferry/framework"
)

// meeting gives the launcher to the service that keeps the contract over it:
// return meet.Open(ctx, env, l).
func meeting(context.Context, bootstrap.Env, meet.Launcher) (bootstrap.Client, error) {
	return nil, fmt.Errorf("%w: %s: bootstrap/meet is not there yet", framework.ErrUnsupported, component)
}
