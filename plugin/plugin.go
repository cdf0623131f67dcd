// Package plugin turns a program into a transport of ferry in a separate process. Its main function calls Serve with a BTL component. A rank that
// imports plugin/host starts the program as a child, through go-plugin, or with the small protocol of docs/plugin-protocol.md, which programs in
// other languages use.
//
// The component runs over an engine of the plugin. Optional interfaces of the rank's protocol and of the component are not used.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/ring"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/internal/doorbell"
	"github.com/ferrympi/ferry/plugin/internal/control"
	"github.com/ferrympi/ferry/plugin/internal/wire"
	"github.com/ferrympi/ferry/progress"
)

// Started reports whether a rank has started this program as its plugin.
func Started() bool {
	return os.Getenv(wire.Environment) != "" || os.Getenv(control.Handshake.MagicCookieKey) == control.Handshake.MagicCookieValue
}

// Serve runs the transport for the rank that has started this process. It blocks until the rank stops the transport or ends. The caller then
// exits, with a status other than 0 after an error. Lines on standard error become log lines of the rank. Parameters of the component have their
// defaults. If a call of the component hangs, Serve returns an error some seconds after the end of the rank. In a process that was not started by
// a rank, Serve prints go-plugin's hint and exits with status 1.
func Serve(c btl.Component) error {
	for fd := wire.ControlFD; Started() && fd <= wire.ProgramFD; fd++ {
		unix.CloseOnExec(fd) // A child with the socket would hide the end of this process.
	}
	if !Started() {
		return serve(c)
	}
	served, orphaned := make(chan error, 1), make(chan struct{})
	go func() { served <- serve(c) }()
	go awaitOrphan(socket(wire.ControlFD), orphaned)
	select {
	case err := <-served:
		return err
	case <-orphaned:
		return fmt.Errorf("plugin: %w, and a call of the component has not returned within %v", errRankGone, orphanGrace)
	}
}

// serve serves over the control protocol that the environment names.
func serve(c btl.Component) error {
	if os.Getenv(wire.Environment) != "" {
		return serveSocket(c)
	}
	return serveGoPlugin(c)
}

func newServer(log io.Writer) *server {
	return &server{
		wakeFD: wire.WakeFD, logWriter: log, outboundPaths: map[uint32]*outbound{}, inboundPaths: map[uint32]*inbound{},
		pingReplies: make(chan func(published uint64) error, 1),
	}
}

// share maps the shared memory.
func share(fd int) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("descriptor %d: %w", fd, err)
	}
	mem, err := unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d: %w", fd, err)
	}
	return mem, nil
}

// server is the plugin's end of the rings, for either control protocol. The engine's lock guards it.
type server struct {
	wakeFD    int // The rank's eventfd
	logWriter io.Writer
	env       btl.Env
	module    btl.Module

	fromRank        *ring.Consumer
	toRank          *ring.Producer
	waitingMessages [][]byte      // Messages without room in the ring
	rankBell        doorbell.Bell // Armed while the rank sleeps

	outboundPaths map[uint32]*outbound
	inboundPaths  map[uint32]*inbound
	// Number of the last path opened by a peer.
	latestInbound uint32

	publishedCount uint64                            // Messages in the ring to the rank since the start
	pingReplies    chan func(published uint64) error // Replies to pings, which Poll calls
	serveWakeup    progress.Completion               // Wakes serve

	isOver bool
	// Reason of a failure, else nil.
	err error
}

// open opens the component over the rings, and returns its description.
func (s *server) open(c btl.Component, start wire.Start) (o wire.Offer, err error) {
	mem, err := share(wire.MemoryFD)
	if err != nil {
		return o, err
	}
	cells, err := wire.Check(mem)
	if err != nil {
		return o, err
	}
	wire.Populate(mem, cells)
	toPlugin, toRank := wire.Rings(mem, cells)
	if s.fromRank, err = ring.NewConsumer(toPlugin[0], toPlugin[1]); err != nil {
		return o, err
	}
	if s.toRank, err = ring.NewProducer(toRank[0], toRank[1]); err != nil {
		return o, err
	}
	s.rankBell = doorbell.At(mem[wire.RankBell : wire.RankBell+doorbell.Size])
	params := c.Params()
	if params != nil {
		framework.FillDefaults(params)
	}
	proc := framework.Proc{Namespace: start.Namespace, Rank: start.Rank}
	s.env = btl.Env{
		Env: progress.Env{
			Identity: bootstrap.Identity{Proc: proc, Size: int(start.Size), LocalRank: int(start.LocalRank), LocalSize: int(start.LocalSize), JobDir: start.Dir},
			Worlds:   framework.NewWorlds(start.Namespace),
			Self:     framework.Incarnation{ID: framework.MakeProcID(0, start.Rank), Nonce: start.Nonce},
			Node:     start.Node,
			Engine:   progress.New(progress.Options{Spin: spin(int(start.LocalSize))}),
			Logger:   slog.New(slog.NewTextHandler(s.logWriter, nil)),
		},
		Params: params,
		Upcall: s,
	}
	if v := c.Probe(context.Background(), params); v.Status != framework.StatusUsable {
		return o, errors.New(v.Why())
	}
	m, err := c.Open(context.Background(), s.env)
	if err == nil {
		m, err = btl.CheckedModule(c.Info().Name, m)
	}
	if err != nil {
		return o, err
	}
	s.module = m
	if _, err := s.env.Engine.Bell().Share(mem[wire.PluginBell : wire.PluginBell+doorbell.Size]); err != nil {
		return o, err
	}
	caps, limit := s.module.Caps(), max(wire.PromptLimit(cells), btl.MinFrameLimit)
	o = wire.Offer{
		Version: wire.Version, Reaches: s.reaches(),
		Eager: uint32(min(caps.EagerLimit, limit)), Frame: uint32(min(caps.FrameLimit, limit)),
		Exclusivity: int32(caps.Exclusivity), Latency: uint64(caps.LatencyNS),
		Name: c.Info().Name, Device: caps.Device, Blob: s.module.Blob(),
	}
	if o.Blob == nil {
		return o, errors.New("the transport has no address: peers cannot connect")
	}
	return o, nil
}

// reaches determines whether the transport is for the process itself, for others, or for both.
func (s *server) reaches() uint32 {
	s.env.Engine.Lock()
	defer s.env.Engine.Unlock()
	self := s.module.Reach(framework.Peer{Incarnation: s.env.Self, Proc: s.env.Identity.Proc, Blob: s.module.Blob()})
	other := s.env.Identity.Proc
	other.Rank++
	others := s.module.Reach(framework.Peer{Incarnation: framework.Incarnation{ID: s.env.Worlds.ID(other), Nonce: s.env.Self.Nonce + 1}, Proc: other, Blob: s.module.Blob()})
	var r uint32
	if self == nil {
		r = wire.ReachesSelf
	}
	var not btl.NotMeant
	if !errors.As(others, &not) {
		r |= wire.ReachesOthers
	}
	return r
}

// serve polls until the end, and closes the transport. It spins and sleeps like a rank in a sequence of waits. With a single wait, the engine's
// progress goroutine would make all progress after the first pause, and it sleeps before each poll.
func (s *server) serve() error {
	e, t := s.env.Engine, transport{s}
	e.Add(t)
	e.Add(s)
	e.Lock()
	var err error
	for err == nil && !s.isOver {
		s.serveWakeup.Reset()
		err = e.Wait(context.Background(), &s.serveWakeup, nil)
	}
	err = errors.Join(err, s.err)
	e.Unlock()
	if err == nil {
		s.drain()
	}
	e.Remove(s)
	e.Remove(t)
	err = errors.Join(err, s.module.Close())
	e.Close()
	return err
}

// drainLimit is the time limit for messages committed before the end. The rank kills the plugin after 5 s.
const drainLimit = 2 * time.Second

// drain handles the messages in the ring from the rank, and passes their frames to the transport while it accepts them.
func (s *server) drain() {
	e, late := s.env.Engine, time.Now().Add(drainLimit)
	for left := true; left && time.Now().Before(late); runtime.Gosched() {
		e.Lock()
		e.Progress()
		left = s.fromRank.Ready()
		for _, p := range s.outboundPaths {
			left = left || len(p.queuedFrames) > 0
		}
		e.Unlock()
	}
}

// end ends serve. err is nil for an orderly end.
func (s *server) end(err error) {
	s.env.Engine.Lock()
	s.fail(err)
	s.env.Engine.Unlock()
}

// ping queues the reply to a ping for Poll, so that a plugin that hangs does not reply.
func (s *server) ping(reply func(published uint64) error) {
	s.pingReplies <- reply
	s.env.Engine.Bell().Ring()
}

// fail ends the plugin. err is nil for an orderly end. The lock is held.
func (s *server) fail(err error) {
	if !s.isOver {
		s.err, s.isOver = err, true
		s.wakeAfter(1)
	}
}

// wakeAfter ends the wait of serve if a poll has made progress. It returns the progress n.
func (s *server) wakeAfter(n int) int {
	if n > 0 && !s.serveWakeup.Done() {
		s.env.Engine.Complete(&s.serveWakeup)
	}
	return n
}

// spin returns the time to poll before yielding. It is short if ranks and plugins outnumber the processors, and 0 for the default.
func spin(ranks int) time.Duration {
	if 2*ranks > cpu.Available() {
		return progress.OversubscribedSpin
	}
	return 0
}
