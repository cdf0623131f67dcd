package plugin

import (
	"encoding/binary"
	"testing"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/ring"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/internal/doorbell"
	"github.com/ferrympi/ferry/plugin/internal/wire"
	"github.com/ferrympi/ferry/progress"
)

// flood is a transport with a peer that sends numbered frames without end.
type flood struct {
	btl.Module
	up   btl.Inbound
	sent uint64
}

func (f *flood) Poll() int {
	for range 8 {
		f.sent++
		if f.up.Frame(binary.LittleEndian.AppendUint64(nil, f.sent)) != nil {
			return 0
		}
	}
	return 8
}

func (f *flood) FD() int   { return -1 }
func (f *flood) Arm() bool { return true }

// A rank that does not read, because it computes or is stopped, must block its peers. The plugin's memory must not grow.
func TestServe_RankDoesNotRead_BlocksPeers(t *testing.T) {
	const cells = 64
	job := kittest.NewJob(1, 1)
	env := btl.Env{Env: job.Begin(0, progress.Options{})}
	defer env.Engine.Close()
	s := &server{wakeFD: -1, env: env, outboundPaths: map[uint32]*outbound{}, inboundPaths: map[uint32]*inbound{}, rankBell: doorbell.New()}
	f := &flood{}
	s.module = f
	_, s.fromRank = ring.New(cells)
	out, rank := ring.New(cells)
	s.toRank = out
	source := transport{s}

	env.Engine.Lock()
	defer env.Engine.Unlock()
	f.up = s.Accept(env.Self)
	poll := func() {
		source.Poll()
		s.Poll()
	}
	for range 10_000 {
		poll()
	}
	if n := len(s.waitingMessages); n == 0 || n > 8 {
		t.Errorf("%d frames are kept", n)
	}
	if _, awaited := framework.As[progress.Descriptor](progress.Source(source)); awaited {
		t.Error("its descriptor is awaited")
	}
	for next := uint64(0); next < 1000; poll() {
		for b, err := rank.Next(); b != nil || err != nil; b, err = rank.Next() {
			kind, _, body, wrong := wire.Take(b)
			if err != nil || wrong != nil {
				t.Fatal(err, wrong)
			}
			if kind == wire.Frame {
				if next++; binary.LittleEndian.Uint64(body) != next {
					t.Fatalf("frame %d comes as number %d", binary.LittleEndian.Uint64(body), next)
				}
			}
			rank.Release()
		}
		if len(s.waitingMessages) > 8 {
			t.Fatalf("%d frames are kept", len(s.waitingMessages))
		}
	}
	for len(s.waitingMessages) > 0 {
		for b, _ := rank.Next(); b != nil; b, _ = rank.Next() {
			rank.Release()
		}
		s.flush()
	}
	if _, awaited := framework.As[progress.Descriptor](progress.Source(source)); !awaited {
		t.Error("its descriptor is not awaited any more")
	}
}

// slow is a transport with a peer that accepts one frame for each Poll.
type slow struct {
	btl.Module
	room int
	took []byte
	b    [1]byte
}

func (m *slow) Connect(framework.Peer) (btl.Endpoint, error) { return m, nil }
func (m *slow) Poll() int                                    { m.room = 1; return 0 }
func (m *slow) Idle() bool                                   { return true }
func (m *slow) Close()                                       {}
func (m *slow) Reserve(n int, _ btl.Placement) []byte {
	if m.room == 0 {
		return nil
	}
	return m.b[:n]
}
func (m *slow) Commit(int) { m.room, m.took = 0, append(m.took, m.b[0]) }

// closes is slow as a module. Its Close differs from that of an endpoint.
type closes struct {
	*slow
	btl.Module
}

func (c closes) Poll() int                                      { return c.slow.Poll() }
func (c closes) Connect(p framework.Peer) (btl.Endpoint, error) { return c.slow.Connect(p) }
func (c closes) Close() error                                   { return nil }

// The end of the plugin comes through the socket, and may overtake frames in the ring.
func TestServe_FramesBeforeEnd_AreSent(t *testing.T) {
	job := kittest.NewJob(1, 1)
	env := btl.Env{Env: job.Begin(0, progress.Options{})}
	defer env.Engine.Close()
	s := &server{wakeFD: -1, env: env, outboundPaths: map[uint32]*outbound{}, inboundPaths: map[uint32]*inbound{}, rankBell: doorbell.New()}
	m := &slow{}
	s.module = closes{slow: m}
	rank, in := ring.New(64)
	s.fromRank = in
	s.toRank, _ = ring.New(64)
	s.pingReplies = make(chan func(uint64) error)
	say := func(kind uint32, body ...byte) {
		b := rank.Reserve(wire.Prefix + len(body))
		wire.Put(b, kind, 2)
		rank.Commit(wire.Prefix + copy(b[wire.Prefix:], body))
	}
	target := wire.Target{Caller: wire.CallerOf(env.Self, env.Worlds), Namespace: env.Identity.Proc.Namespace, Greeting: env.Greet(env.Self)}
	say(wire.Connect, target.Bytes()...)
	env.Engine.Lock()
	s.Poll()
	m.Poll()
	s.Poll() // opened
	for i := range byte(wire.Credit) {
		say(wire.Frame, i)
	}
	s.fail(nil)
	env.Engine.Unlock()
	env.Engine.Add(transport{s})
	env.Engine.Add(s)
	s.drain()
	env.Engine.Remove(s)
	env.Engine.Remove(transport{s})
	if len(m.took) != wire.Credit {
		t.Errorf("%d of %d frames are sent", len(m.took), wire.Credit)
	}
}
