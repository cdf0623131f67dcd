package host

import (
	"context"
	"errors"
	"os"
	"os/exec"

	"github.com/ferrympi/ferry/config"
	"github.com/ferrympi/ferry/plugin/internal/wire"
)

// control is the channel between a rank and its plugin for the whole process. Paths are opened and closed by messages in the rings, in order with
// their frames.
type control interface {
	// open opens the transport, and returns its description, unchecked. It blocks until the plugin
	// answers, ctx ends or the child exits.
	open(ctx context.Context, start wire.Start) (wire.Offer, error)

	// ping requests a reply. It does not wait for one.
	ping()

	// serve calls pong for each reply until the channel ends, and returns errChannelEnded or a protocol error of the plugin. The argument
	// of pong is the number of messages in the ring to the rank since the start.
	serve(pong func(published uint64)) error

	// stop requests the orderly end of the plugin. It may block until the child exits.
	stop()

	// close frees the channel of a child that has exited. A call of serve returns.
	close()
}

// errChannelEnded is the end of the channel without a reason, usually because the child has exited.
var errChannelEnded = errors.New("the plugin has closed its control channel")

// errNoHandshake is wrapped by the errors of go-plugin's start.
var errNoHandshake = errors.New("go-plugin")

// errNoFirstLine is wrapped, besides errNoHandshake, while the plugin has printed no first line.
var errNoFirstLine = errors.New("no handshake")

// launch has the parts of a plugin's start that both protocols need.
type launch struct {
	component  component
	params     *params
	jobDir     string    // "" if there is none
	cmd        *exec.Cmd // With descriptors and environment, not started
	rankSocket *os.File  // The rank's end of the control socket
	output     *output
}

// start starts the command, and returns its channel, which the caller closes also after an error.
// The child is nil if no process was started.
func (l *launch) start(ctx context.Context) (control, *child, error) {
	if l.component.Protocol == config.ProtocolFerry {
		return l.startSocket()
	}
	return l.startGoPlugin(ctx)
}
