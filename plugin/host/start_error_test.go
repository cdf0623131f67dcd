package host

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/progress"
)

func TestStartError_TimeoutAfterHandshake_HasNoHint(t *testing.T) {
	env := btl.Env{Env: progress.Env{Engine: progress.New(progress.Options{})}}
	defer env.Engine.Close()
	for _, hasLine := range []bool{false, true} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Nanosecond, errors.New("start_timeout"))
		defer cancel()
		<-ctx.Done()
		var c command
		c.hasLine.Store(hasLine)
		p := &process{ringPoller: env.Bell().Ring}
		err, _ := p.startError(ctx, c.startError(errors.New("go-plugin gives up")))
		if strings.Contains(err.Error(), serveHint) == hasLine || !strings.HasPrefix(err.Error(), "start_timeout") {
			t.Errorf("first line %v: %v", hasLine, err)
		}
	}
}
