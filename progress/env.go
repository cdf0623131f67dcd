package progress

import (
	"log/slog"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
)

// Env is what every module that the engine polls is opened with, whatever its
// contract.
type Env struct {
	Identity bootstrap.Identity
	Worlds   *framework.Worlds
	Self     framework.Life // this process; its nonce proves to a peer whose memory or socket it met
	Engine   *Engine
	Logger   *slog.Logger
}
