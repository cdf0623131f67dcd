package udp

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/progress"
)

// node sends numbered frames, receives those of its peer, and answers one of four immediately.
type node struct {
	discardProtocol
	t              testing.TB
	m              *module
	to             *sendPath
	random         *rand.Rand
	sent, received uint64
	limit          uint64
}

func (s *node) Accept(framework.Incarnation) btl.Inbound { return s }

// size returns the size of frame n.
func size(n uint64) int { return 8 + int(n%100) }

func (s *node) send() {
	if s.sent == s.limit {
		return
	}
	if b := s.to.Reserve(size(s.sent), btl.RingStart); b != nil {
		binary.LittleEndian.PutUint64(b, s.sent)
		s.sent++
		s.to.Commit(len(b))
	}
}

func (s *node) Place([]byte, int) []byte { return nil }
func (s *node) Placed([]byte, int) error { return nil }

func (s *node) Frame(b []byte) error {
	if n := binary.LittleEndian.Uint64(b); n != s.received || len(b) != size(n) {
		s.t.Errorf("received frame %d of %d bytes, want frame %d", n, len(b), s.received)
	}
	if s.received++; s.random.IntN(4) == 0 {
		s.send()
	}
	return nil
}

// step runs one random operation of a protocol.
func (s *node) step(peer framework.Incarnation) {
	switch s.random.IntN(8) {
	case 0, 1:
		s.send()
	case 2, 3:
		s.m.Poll()
	default:
		in, ok := s.m.PeerSource(peer).(*source)
		if !ok {
			return
		}
		if b := in.Peek(1 + s.random.IntN(16)); b != nil && s.random.IntN(4) > 0 {
			_ = s.Frame(b)
			in.Drop()
		}
	}
}

func TestFrames_PolledAndPeekedOverLossyNetwork_ArriveOnceInOrder(t *testing.T) {
	for seed := range uint64(5) {
		var sides [2]*node
		job := kittest.NewJob(2, 1)
		for rank := range sides {
			env := job.Begin(rank, progress.Options{})
			s := &node{t: t, random: rand.New(rand.NewPCG(seed, uint64(rank)))}
			mod, err := lossyComponent{}.Open(t.Context(), btl.Env{Env: env, Params: kittest.Params(component{}, nil), Upcall: s})
			if err != nil {
				t.Fatal(err)
			}
			s.m = mod.(*module)
			sides[rank] = s
			defer func() { env.Engine.Close(); mod.Close() }()
		}
		a, b := sides[0], sides[1]
		a.to, b.to = connect(t, a.m, b.m), connect(t, b.m, a.m)
		for range 100 {
			a.limit, b.limit = a.limit+10, b.limit+10
			waitFor(t, "all frames arrive and are acknowledged", func() bool {
				for range a.random.IntN(40) {
					a.step(b.m.env.Self)
				}
				for range b.random.IntN(40) {
					b.step(a.m.env.Self)
				}
				return t.Failed() || a.received == b.limit && b.received == a.limit && a.to.Idle() && b.to.Idle()
			})
			if t.Failed() {
				t.Fatalf("seed %d: %d of %d and %d of %d frames have arrived", seed, a.received, b.sent, b.received, a.sent)
			}
		}
	}
}

// A pause of the process itself does not count as silence of the peer.
func TestPath_ProcessWasStopped_StaysOpen(t *testing.T) {
	a, b := pair(t)
	e := connect(t, a, b)
	stop := func() { a.openedAt = a.openedAt.Add(-time.Hour) }
	stop()
	waitFor(t, "the path opens", func() bool { a.Poll(); b.Poll(); return e.dest != nil || e.closed })
	e.Reserve(9, btl.RingStart)
	e.Commit(9)
	stop()
	waitFor(t, "the frame is acknowledged", func() bool { a.Poll(); b.Poll(); return e.Idle() })
	if e.closed {
		t.Error("peer reported unreachable")
	}
}
