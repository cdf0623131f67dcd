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
	// Node is equal in two processes if they are on one node: they see the same shared memory.
	// It is compared with what others' cards say (framework.Card.OnNode); empty: not known.
	Node   string
	Engine *Engine
	Logger *slog.Logger
}

// Bell is the engine's: a module rings it from its own goroutines, and gives it
// memory that other processes see if they bring it something.
func (e Env) Bell() *Bell { return e.Engine.Bell() }
