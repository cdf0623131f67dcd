// Package plugin makes a program a transport of ferry that runs as a process of its own: its
// main function calls Serve with a BTL component, and a rank whose program imports
// plugin/host starts it, as its child. docs/plugin-protocol.md has what the two tell each
// other; other languages speak that.
//
// The component runs as it would in the rank, over an engine of the plugin's. It gets no
// optional ability of the rank's protocol, and of its own abilities the rank uses none.
package plugin

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/ring"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/internal/doorbell"
	"github.com/ferrympi/ferry/plugin/internal/wire"
	"github.com/ferrympi/ferry/progress"
)

// Started reports whether a rank has started this program as its plugin.
func Started() bool { return os.Getenv(wire.Environment) != "" }

// Serve is a plugin: it serves the rank that has started this process until that ends the
// transport, or is gone. The caller exits then, with a status other than 0 for an error;
// what it writes to standard error becomes log lines of the rank. Parameters of the
// component have their defaults.
func Serve(c btl.Component) error {
	v := os.Getenv(wire.Environment)
	if v == "" {
		return errors.New("this program is a plugin: a rank starts it, whose configuration names it under plugins")
	}
	s := &server{control: wire.ControlFD, wake: wire.WakeFD, paths: map[uint32]*outbound{}, accepted: map[uint32]*inbound{}}
	for _, fd := range []int{wire.ControlFD, wire.MemoryFD, wire.WakeFD} {
		unix.CloseOnExec(fd) // a child that held the socket would hide this process's end
	}
	if v != strconv.Itoa(wire.Version) {
		_, _ = s.hello() // of any version: a socket that closes with something unread loses what was said
		theirs, _ := strconv.ParseUint(v, 10, 32)
		err := wire.Differ(false, uint32(theirs))
		return errors.Join(err, s.say(wire.Failed, []byte(err.Error()))) // a frame of every version
	}
	mem, err := share(wire.MemoryFD)
	if err != nil {
		return err
	}
	start, err := s.hello()
	if err != nil {
		return err
	}
	if err := s.open(c, start, mem); err != nil {
		return errors.Join(err, s.say(wire.Failed, []byte(err.Error())))
	}
	return s.serve()
}

// share maps the memory.
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

// server is the plugin's end. But for control, the engine's lock guards it.
type server struct {
	control, wake int
	env           btl.Env
	module        btl.Module
	in            *ring.Consumer
	out           *ring.Producer
	rank          doorbell.Bell // says whether the rank sleeps
	queue         [][]byte      // messages for which the ring had no room
	paths         map[uint32]*outbound
	accepted      map[uint32]*inbound
	next          uint32              // the last inbound path's number
	published     uint64              // messages in the ring to the rank, so far
	pings         chan uint64         // that Poll answers
	stir          progress.Completion // of serve, by whatever happens
	over          bool
	err           error
}

// hear returns the next control frame.
func (s *server) hear() (kind uint32, body []byte, err error) {
	b := make([]byte, wire.ControlLimit)
	n, err := unix.Read(s.control, b)
	for err == unix.EINTR {
		n, err = unix.Read(s.control, b)
	}
	switch {
	case err != nil:
		return 0, nil, fmt.Errorf("control socket: %w", err)
	case n == 0:
		return 0, nil, errors.New("the rank is gone")
	case n < 4:
		return 0, nil, fmt.Errorf("a control frame of %d bytes", n)
	}
	return binary.LittleEndian.Uint32(b), b[4:n], nil
}

// say sends a control frame.
func (s *server) say(kind uint32, body []byte) error {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(body)), kind)
	_, err := unix.Write(s.control, append(b, body...))
	return err
}

// hello waits for the rank's first word.
func (s *server) hello() (wire.Start, error) {
	kind, body, err := s.hear()
	if err != nil || kind != wire.Hello {
		return wire.Start{}, errors.Join(err, fmt.Errorf("the rank begins with control frame %d", kind))
	}
	return wire.ParseStart(body)
}

// open opens the component, and tells the rank what it is.
func (s *server) open(c btl.Component, start wire.Start, mem []byte) error {
	cells, err := wire.Check(mem)
	if err != nil {
		return err
	}
	wire.Populate(mem, cells)
	toPlugin, toRank := wire.Rings(mem, cells)
	if s.in, err = ring.NewConsumer(toPlugin[0], toPlugin[1]); err != nil {
		return err
	}
	if s.out, err = ring.NewProducer(toRank[0], toRank[1]); err != nil {
		return err
	}
	s.rank = doorbell.At(mem[wire.RankBell : wire.RankBell+doorbell.Size])
	params := c.Params()
	if params != nil {
		framework.FillDefaults(params)
	}
	proc := framework.Proc{Namespace: start.Namespace, Rank: start.Rank}
	s.env = btl.Env{
		Env: progress.Env{
			Identity: bootstrap.Identity{Proc: proc, Size: int(start.Size), LocalRank: int(start.LocalRank), LocalSize: int(start.LocalSize), Dir: start.Dir},
			Worlds:   framework.NewWorlds(start.Namespace),
			Self:     framework.Life{ID: framework.MakeProcID(0, start.Rank), Nonce: start.Nonce},
			Node:     start.Node,
			Engine:   progress.New(progress.Options{Spin: spin(int(start.LocalSize))}),
			Logger:   slog.New(slog.NewTextHandler(os.Stderr, nil)),
		},
		Params: params,
		Upcall: s,
	}
	if v := c.Probe(context.Background(), params); v.Status != framework.StatusUsable {
		return errors.New(v.Why())
	}
	if s.module, err = c.Open(context.Background(), s.env); err != nil {
		return err
	}
	if _, err := s.env.Engine.Bell().Share(mem[wire.PluginBell : wire.PluginBell+doorbell.Size]); err != nil {
		return err
	}
	caps, limit := s.module.Caps(), max(wire.PromptLimit(cells), btl.MinFrameLimit)
	o := wire.Offer{
		Version: wire.Version, Reaches: s.reaches(),
		Eager: uint32(min(caps.EagerLimit, limit)), Frame: uint32(min(caps.FrameLimit, limit)),
		Exclusivity: int32(caps.Exclusivity), Latency: uint64(caps.LatencyNS),
		Name: c.Info().Name, Device: caps.Device, Blob: s.module.Blob(),
	}
	if o.Blob == nil {
		return errors.New("the transport has no address: peers can't connect")
	}
	_, err = unix.Write(s.control, o.Bytes())
	return err
}

// reaches finds out whether the transport is for the process itself only, or for others
// only.
func (s *server) reaches() uint32 {
	s.env.Engine.Lock()
	defer s.env.Engine.Unlock()
	self := s.module.Reach(framework.Peer{Life: s.env.Self, Proc: s.env.Identity.Proc, Blob: s.module.Blob()})
	other := s.env.Identity.Proc
	other.Rank++
	others := s.module.Reach(framework.Peer{Life: framework.Life{ID: s.env.Worlds.ID(other), Nonce: s.env.Self.Nonce + 1}, Proc: other, Blob: s.module.Blob()})
	var r uint32
	if self == nil {
		r = 1
	}
	var not btl.NotMeant
	if !errors.As(others, &not) {
		r |= 2
	}
	return r
}

// serve polls until it is over, spinning and sleeping as a rank does that waits for one message
// after the other: with a single wait, the first pause would leave all that follows to the
// engine's keeper, which sleeps before each.
func (s *server) serve() error {
	s.pings = make(chan uint64, 1)
	go s.listen()
	e, t := s.env.Engine, transport{s}
	e.Add(t)
	e.Add(s)
	e.Lock()
	var err error
	for err == nil && !s.over {
		s.stir.Reset()
		err = e.Wait(context.Background(), &s.stir, nil)
	}
	err = errors.Join(err, s.err)
	e.Unlock()
	if err == nil {
		s.last()
	}
	e.Remove(s)
	e.Remove(t)
	err = errors.Join(err, s.module.Close())
	e.Close()
	return err
}

// lastLimit is how long the transport may take for what the rank has said before it ended
// this plugin, which it kills after 5 s.
const lastLimit = 2 * time.Second

// last handles what is in the ring from the rank, and gives the transport what it takes of it.
func (s *server) last() {
	e, late := s.env.Engine, time.Now().Add(lastLimit)
	for left := true; left && time.Now().Before(late); runtime.Gosched() {
		e.Lock()
		e.Progress()
		left = s.in.Ready()
		for _, p := range s.paths {
			left = left || len(p.frames) > 0
		}
		e.Unlock()
	}
}

// listen takes control frames. Pings go to Poll: what hangs does not answer.
func (s *server) listen() {
	for {
		kind, body, err := s.hear()
		if err == nil && kind == wire.Ping && len(body) == 8 {
			s.pings <- binary.LittleEndian.Uint64(body)
			s.env.Engine.Bell().Ring()
			continue
		}
		if err == nil && kind != wire.End {
			err = fmt.Errorf("the rank sent control frame %d", kind)
		}
		s.env.Engine.Lock()
		s.fail(err)
		s.env.Engine.Unlock()
		return
	}
}

// fail ends the plugin; nil is in good order. Called with the lock held.
func (s *server) fail(err error) {
	if !s.over {
		s.err, s.over = err, true
		s.happened(1)
	}
}

// happened says that n things have, and returns n.
func (s *server) happened(n int) int {
	if n > 0 && !s.stir.Done() {
		s.env.Engine.Complete(&s.stir)
	}
	return n
}

// spin is how long to poll before the processor is offered: little where ranks and their plugins
// outnumber the processors. 0: as usual.
func spin(ranks int) time.Duration {
	if 2*ranks > cpu.Available() {
		return progress.OversubscribedSpin
	}
	return 0
}
