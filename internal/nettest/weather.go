package nettest

import (
	"cmp"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Weather is what happens to packets on their way. What happens to the n-th packet of
// a direction depends on Seed, the direction and n alone.
type Weather struct {
	Seed   uint64
	Loss   float64       // this part of the packets is lost
	Swap   float64       // this part is overtaken by one to three later ones
	Delay  time.Duration // of each packet
	Jitter time.Duration // at most so much more; packets don't overtake one another by it

	LargestPacket int // Larger packets are lost, as in an MTU black hole. In bytes; 0: no limit.

	patience time.Duration // that a packet waits for those that overtake it; 0: 5 ms
}

// overtaken is by how many later packets one is at most.
const overtaken = 3

// sky is the weather of one direction. It decides on packets in order and knows no
// clock.
type sky struct {
	Weather
	dice *rand.Rand
	held []held // packets that later ones overtake, the oldest first
	met  *Met
}

// Met is what has happened to packets so far, both ways.
type Met struct{ Packets, Lost, Overtaken atomic.Int64 }

type held struct {
	packet
	left int // so many packets still overtake it
}

// A packet waits for its time.
type packet struct {
	bytes []byte
	delay time.Duration
}

func newSky(w Weather, direction uint64, met *Met) *sky {
	w.patience = cmp.Or(w.patience, 5*time.Millisecond)
	return &sky{Weather: w, dice: rand.New(rand.NewPCG(w.Seed, direction)), met: met}
}

// pass takes the next packet, and returns those that go on now, in order: none, if it
// is lost or held.
func (s *sky) pass(bytes []byte) (out []packet) {
	// The same draws for each packet, whatever becomes of it.
	lost, swap, by, jitter := s.dice.Float64(), s.dice.Float64(), 1+s.dice.IntN(overtaken), s.dice.Float64()
	s.met.Packets.Add(1)
	p := packet{bytes, s.Delay + time.Duration(jitter*float64(s.Jitter))}
	switch {
	case lost < s.Loss, s.LargestPacket > 0 && len(bytes) > s.LargestPacket:
		s.met.Lost.Add(1)
		return nil
	case swap < s.Swap:
		s.met.Overtaken.Add(1)
		s.held = append(s.held, held{p, by})
		return nil
	}
	out = append(out, p)
	kept := s.held[:0]
	for _, h := range s.held {
		if h.left--; h.left == 0 {
			out = append(out, h.packet)
		} else {
			kept = append(kept, h)
		}
	}
	s.held = kept
	return out
}

// clear returns the packets that are held: nothing came that could overtake them.
func (s *sky) clear() (out []packet) {
	for _, h := range s.held {
		out = append(out, h.packet)
	}
	s.held = nil
	return out
}
