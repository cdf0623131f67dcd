package progress

import (
	"log/slog"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
)

// Env is the environment of a module that the engine polls, independent of its contract.
type Env struct {
	Identity bootstrap.Identity
	Worlds   *framework.Worlds
	// Incarnation of this process. Peers identify its memory and sockets by the nonce.
	Self framework.Incarnation
	// Node is the id of the node, empty if unknown. It is equal in processes that share memory. Cards have the id of other processes
	// (framework.Card.OnNode).
	Node   string
	Engine *Engine
	Logger *slog.Logger
}

// Bell returns the engine's bell. A module rings it from its own goroutines, or shares it with processes that publish work for the module.
func (e Env) Bell() *Bell { return e.Engine.Bell() }
