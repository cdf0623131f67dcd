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

// side is a process that sends numbered frames, takes those of its peer, and answers some of
// them at once, as protocols do.
type side struct {
	deaf
	t          testing.TB
	m          *module
	to         *outbound
	random     *rand.Rand
	sent, came uint64
	most       uint64
}

func (s *side) Accept(framework.Life) btl.Inbound { return s }

// size is that of frame n.
func size(n uint64) int { return 8 + int(n%100) }

func (s *side) send() {
	if s.sent == s.most {
		return
	}
	if b := s.to.Reserve(size(s.sent)); b != nil {
		binary.LittleEndian.PutUint64(b, s.sent)
		s.sent++
		s.to.Commit(len(b))
	}
}

func (s *side) Frame(b []byte) error {
	if n := binary.LittleEndian.Uint64(b); n != s.came || len(b) != size(n) {
		s.t.Errorf("frame %d came, of %d bytes, where %d was to", n, len(b), s.came)
	}
	if s.came++; s.random.IntN(4) == 0 {
		s.send()
	}
	return nil
}

// step does one of the things that a protocol does.
func (s *side) step(peer framework.Life) {
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

// TestFramesArriveOnceHoweverTheyAreTaken: in bad weather some are handed up, some are peeked
// at and taken, some are peeked at and left, and some are answered before the next one.
func TestFramesArriveOnceHoweverTheyAreTaken(t *testing.T) {
	for seed := range uint64(5) {
		var sides [2]*side
		job := kittest.NewJob(2, 1)
		for rank := range sides {
			env := job.Begin(rank, progress.Options{})
			s := &side{t: t, random: rand.New(rand.NewPCG(seed, uint64(rank)))}
			opened, err := weather{}.Open(t.Context(), btl.Env{Env: env, Params: kittest.Params(component{}, nil), Upcall: s})
			if err != nil {
				t.Fatal(err)
			}
			s.m = opened.(*module)
			sides[rank] = s
			defer func() { env.Engine.Close(); opened.Close() }()
		}
		a, b := sides[0], sides[1]
		a.to, b.to = connect(t, a.m, b.m), connect(t, b.m, a.m)
		for range 100 {
			a.most, b.most = a.most+10, b.most+10
			soon(t, "all frames arrive, and both hear of it", func() bool {
				for range a.random.IntN(40) {
					a.step(b.m.env.Self)
				}
				for range b.random.IntN(40) {
					b.step(a.m.env.Self)
				}
				return t.Failed() || a.came == b.most && b.came == a.most && a.to.Idle() && b.to.Idle()
			})
			if t.Failed() {
				t.Fatalf("seed %d: %d of %d and %d of %d frames have arrived", seed, a.came, b.sent, b.came, a.sent)
			}
		}
	}
}

// TestStoppedProcessGivesNobodyUp: what it has missed counts as its own silence.
func TestStoppedProcessGivesNobodyUp(t *testing.T) {
	a, b := pair(t)
	e := connect(t, a, b)
	stop := func() { a.begin = a.begin.Add(-time.Hour) }
	stop()
	soon(t, "the path opens", func() bool { a.Poll(); b.Poll(); return e.to != nil || e.closed })
	e.Reserve(9)
	e.Commit(9)
	stop()
	soon(t, "the frame is confirmed", func() bool { a.Poll(); b.Poll(); return e.Idle() })
	if e.closed {
		t.Error("the peer was given up")
	}
}
