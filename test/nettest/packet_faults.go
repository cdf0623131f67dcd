package nettest

import (
	"cmp"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// PacketFaults has the faults of a link. The fate of the n-th packet of a direction depends only on
// Seed, the direction and n.
type PacketFaults struct {
	Seed uint64
	// Fraction of lost packets.
	Loss float64
	// Fraction of packets that one to three later ones overtake.
	Reorder float64
	// Delay of each packet.
	Delay time.Duration
	// Maximum additional delay, which does not reorder packets.
	Jitter time.Duration

	// Largest packet in bytes, 0 for no limit. Larger ones are lost, as in an MTU black hole.
	LargestPacket int

	// Maximum time that a packet waits for those that overtake it, 0 for 5 ms.
	holdLimit time.Duration
}

// maxOvertakers is the maximum number of packets that overtake one.
const maxOvertakers = 3

// faultModel has the faults of one direction. It processes packets in order and is independent of the
// time.
type faultModel struct {
	PacketFaults
	random *rand.Rand
	// Packets that later ones overtake, the oldest first.
	held   []heldPacket
	counts *PacketCounts
}

// PacketCounts counts the packets of both directions and their faults.
type PacketCounts struct{ Packets, Lost, Reordered atomic.Int64 }

type heldPacket struct {
	packet
	// Number of packets that still overtake it.
	overtakersLeft int
}

// packet is a packet with its delay.
type packet struct {
	bytes []byte
	delay time.Duration
}

func newFaultModel(w PacketFaults, direction uint64, met *PacketCounts) *faultModel {
	w.holdLimit = cmp.Or(w.holdLimit, 5*time.Millisecond)
	return &faultModel{PacketFaults: w, random: rand.New(rand.NewPCG(w.Seed, direction)), counts: met}
}

// pass processes the next packet and returns the packets to send now in order. It returns none if
// the packet is lost or held.
func (s *faultModel) pass(bytes []byte) (out []packet) {
	// The same random numbers for each packet, independent of its fate.
	lost, swap, by, jitter := s.random.Float64(), s.random.Float64(), 1+s.random.IntN(maxOvertakers), s.random.Float64()
	s.counts.Packets.Add(1)
	p := packet{bytes, s.Delay + time.Duration(jitter*float64(s.Jitter))}
	switch {
	case lost < s.Loss, s.LargestPacket > 0 && len(bytes) > s.LargestPacket:
		s.counts.Lost.Add(1)
		return nil
	case swap < s.Reorder:
		s.counts.Reordered.Add(1)
		s.held = append(s.held, heldPacket{p, by})
		return nil
	}
	out = append(out, p)
	kept := s.held[:0]
	for _, h := range s.held {
		if h.overtakersLeft--; h.overtakersLeft == 0 {
			out = append(out, h.packet)
		} else {
			kept = append(kept, h)
		}
	}
	s.held = kept
	return out
}

// releaseHeld returns the held packets after a time without other packets.
func (s *faultModel) releaseHeld() (out []packet) {
	for _, h := range s.held {
		out = append(out, h.packet)
	}
	s.held = nil
	return out
}
