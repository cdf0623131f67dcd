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
	Seed         uint64
	LossFraction float64
	// Of packets that one to three later ones overtake.
	ReorderFraction float64
	PacketDelay     time.Duration
	// Additional to PacketDelay. It does not reorder packets.
	MaxJitter time.Duration

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
	randomSource *rand.Rand
	// Packets that later ones overtake, the oldest first.
	heldPackets  []heldPacket
	packetCounts *PacketCounts
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
	return &faultModel{PacketFaults: w, randomSource: rand.New(rand.NewPCG(w.Seed, direction)), packetCounts: met}
}

// pass processes the next packet and returns the packets to send now in order. It returns none if
// the packet is lost or held.
func (s *faultModel) pass(bytes []byte) (out []packet) {
	// The same random numbers for each packet, independent of its fate.
	lost, swap, by, jitter := s.randomSource.Float64(), s.randomSource.Float64(), 1+s.randomSource.IntN(maxOvertakers), s.randomSource.Float64()
	s.packetCounts.Packets.Add(1)
	p := packet{bytes, s.PacketDelay + time.Duration(jitter*float64(s.MaxJitter))}
	switch {
	case lost < s.LossFraction, s.LargestPacket > 0 && len(bytes) > s.LargestPacket:
		s.packetCounts.Lost.Add(1)
		return nil
	case swap < s.ReorderFraction:
		s.packetCounts.Reordered.Add(1)
		s.heldPackets = append(s.heldPackets, heldPacket{p, by})
		return nil
	}
	out = append(out, p)
	kept := s.heldPackets[:0]
	for _, h := range s.heldPackets {
		if h.overtakersLeft--; h.overtakersLeft == 0 {
			out = append(out, h.packet)
		} else {
			kept = append(kept, h)
		}
	}
	s.heldPackets = kept
	return out
}

// releaseHeld returns the held packets after a time without other packets.
func (s *faultModel) releaseHeld() (out []packet) {
	for _, h := range s.heldPackets {
		out = append(out, h.packet)
	}
	s.heldPackets = nil
	return out
}
