package host

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	plugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	service "github.com/ferrympi/ferry/plugin/internal/control"
	"github.com/ferrympi/ferry/plugin/internal/wire"
)

// goPluginControl is a client of go-plugin, and the gRPC service Transport over it.
type goPluginControl struct {
	client    *plugin.Client
	transport service.TransportClient
	command   *command
	// The plugin notices its close at the end of this process.
	socket       *os.File
	outputPipes  []*io.PipeWriter
	pingRequests chan struct{}
	callCtx      context.Context // Of calls after open; ends with the child
	cancel       context.CancelFunc
}

func (l *launch) startGoPlugin(ctx context.Context) (control, *child, error) {
	dir, err := socketDir(socketDirs(l.jobDir))
	if err != nil {
		l.rankSocket.Close()
		return nil, nil, err
	}
	g := &goPluginControl{command: &command{cmd: l.cmd, output: l.output}, socket: l.rankSocket, pingRequests: make(chan struct{}, 1)}
	g.callCtx, g.cancel = context.WithCancel(context.Background())
	g.command.stdoutPipe, g.command.handshakePipe = io.Pipe()
	g.client = plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  service.Handshake,
		VersionedPlugins: service.Versions(nil),
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		RunnerFunc:       g.command.runner,
		AutoMTLS:         true,
		SkipHostEnv:      true,
		StartTimeout:     l.params.StartTimeout,
		SyncStdout:       g.stream(l.output),
		SyncStderr:       g.stream(l.output),
		Logger:           hclogger(l.output.logger),
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: dir},
	})
	stop := context.AfterFunc(ctx, func() { _ = g.command.Kill(ctx) })
	defer stop()
	rpc, err := g.client.Client()
	if err == nil {
		var raw any
		if raw, err = rpc.Dispense(service.Name); err == nil {
			g.transport = raw.(service.TransportClient)
		}
	}
	if err != nil {
		err = g.command.startError(err)
	}
	child := g.command.started()
	if child != nil {
		go func() { <-child.exited; g.cancel() }() // Calls end with the child.
	}
	return g, child, err
}

// stream returns a writer that logs lines.
func (g *goPluginControl) stream(o *output) io.Writer {
	r, w := io.Pipe()
	o.follow(r)
	g.outputPipes = append(g.outputPipes, w)
	return w
}

func (g *goPluginControl) open(ctx context.Context, start wire.Start) (wire.Offer, error) {
	r, err := g.transport.Open(ctx, service.RequestOf(start))
	switch s, _ := status.FromError(err); {
	case err == nil:
		_ = os.RemoveAll(g.command.socketDir) // Not needed any more, and a killed rank could not remove it.
		return r.Offer(), nil
	case s.Code() == codes.Unavailable:
		return wire.Offer{}, errChannelEnded
	case s.Code() == codes.FailedPrecondition:
		return wire.Offer{}, fmt.Errorf("the plugin reports: %.500q", s.Message())
	default:
		return wire.Offer{}, fmt.Errorf("the plugin failed to open its transport: %.500s", s.Err())
	}
}

func (g *goPluginControl) ping() {
	select {
	case g.pingRequests <- struct{}{}:
	default: // The previous one has no reply yet.
	}
}

// serve makes one call of Ping for each ping. The plugin's own service replies from its loop;
// go-plugin's Ping would reply as long as its gRPC server does, and takes no context.
func (g *goPluginControl) serve(pong func(published uint64)) error {
	for {
		select {
		case <-g.callCtx.Done():
			return errChannelEnded
		case <-g.pingRequests:
		}
		r, err := g.transport.Ping(g.callCtx, &service.PingRequest{})
		switch {
		case g.callCtx.Err() != nil, status.Code(err) == codes.Unavailable:
			return errChannelEnded
		case err != nil:
			return fmt.Errorf("the plugin does not reply to a ping: %.500s", err)
		}
		pong(r.GetPublished())
	}
}

// stop closes the transport and then the process, which go-plugin kills after 2 s.
func (g *goPluginControl) stop() {
	_, _ = g.transport.Close(g.callCtx, &service.CloseRequest{}) // A plugin without a reply is killed.
	g.client.Kill()
}

func (g *goPluginControl) close() {
	g.cancel()
	g.client.Kill() // Closes the connection, and removes the folder of the socket.
	for _, w := range g.outputPipes {
		w.Close()
	}
	g.socket.Close()
}

// command runs the command of a plugin for go-plugin. go-plugin's own runner passes standard input on, hangs at the end of a plugin while another
// process holds its output open, and does not remove the socket of a killed plugin.
type command struct {
	cmd           *exec.Cmd
	output        *output
	stdoutPipe    *io.PipeReader // Carries the first line, the handshake; later ones are logged
	handshakePipe *io.PipeWriter
	socketDir     string       // Of go-plugin's Unix socket
	firstLine     atomic.Value // A first line without a handshake, a string
	hasLine       atomic.Bool  // The first line has come

	mu sync.Mutex
	// nil before Start.
	child    *child
	isKilled bool // Start must fail
}

// runner implements ClientConfig.RunnerFunc. go-plugin's variables come after those of the entry.
func (c *command) runner(_ hclog.Logger, spec *exec.Cmd, dir string) (runner.Runner, error) {
	c.socketDir = dir
	c.cmd.Env = append(c.cmd.Env, spec.Env...)
	return c, nil
}

// Start implements runner.Runner.
func (c *command) Start(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isKilled {
		return context.Canceled
	}
	child, err := startChild(c.cmd)
	if err != nil {
		return err
	}
	c.child = child
	c.output.follow(child.stderr)
	c.output.openStreams.Go(func() {
		defer child.stdout.Close()
		b := bufio.NewReaderSize(child.stdout, handshakeLimit)
		if line, _, err := b.ReadLine(); err == nil {
			c.hasLine.Store(true)
			if !isHandshake(line) {
				c.firstLine.Store(string(line))
				c.output.line(line)
			}
			_, _ = fmt.Fprintf(c.handshakePipe, "%s\n", line)
		}
		c.handshakePipe.Close()
		c.output.read(b)
	})
	return nil
}

// startError returns go-plugin's error of a start in one line, with the line in place of a handshake.
func (c *command) startError(err error) error {
	if line, ok := c.firstLine.Load().(string); ok {
		return fmt.Errorf("%w: the plugin has printed %.100q in place of its handshake; it may print nothing on standard output before plugin.Serve", errNoHandshake, line)
	}
	reason := strings.Join(strings.Fields(err.Error()), " ")
	if !c.hasLine.Load() {
		return fmt.Errorf("%w: %w: %.500s", errNoHandshake, errNoFirstLine, reason)
	}
	return fmt.Errorf("%w: %.500s", errNoHandshake, reason)
}

// isHandshake reports whether go-plugin takes a line for its handshake.
func isHandshake(line []byte) bool { return bytes.Count(line, []byte("|")) >= 3 }

// handshakeLimit is the longest first line, which has a certificate.
const handshakeLimit = 32 << 10

// started returns the child, nil if there is none.
func (c *command) started() *child {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.child
}

// Wait implements runner.Runner.
func (c *command) Wait(context.Context) error {
	_ = c.started().status()
	return nil // The status is reported by process.
}

// Kill implements runner.Runner. A child that is about to exit keeps its own status. Later calls of
// Start fail.
func (c *command) Kill(context.Context) error {
	c.mu.Lock()
	c.isKilled = true
	child := c.child
	c.mu.Unlock()
	if child != nil && !child.exitsWithin(outputGrace) {
		child.kill()
	}
	return nil
}

// ID implements runner.Runner.
func (c *command) ID() string {
	if child := c.started(); child != nil {
		return strconv.Itoa(child.cmd.Process.Pid)
	}
	return "not started"
}

// Name implements runner.Runner.
func (c *command) Name() string { return c.cmd.Args[0] }

// Stdout implements runner.Runner.
func (c *command) Stdout() io.ReadCloser { return c.stdoutPipe }

// Stderr implements runner.Runner. go-plugin does not see the lines, see output.print.
func (c *command) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

// Diagnose implements runner.Runner.
func (c *command) Diagnose(context.Context) string { return "" }

// PluginToHost implements runner.Runner.
func (c *command) PluginToHost(network, address string) (string, string, error) {
	return network, address, nil
}

// HostToPlugin implements runner.Runner.
func (c *command) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}
