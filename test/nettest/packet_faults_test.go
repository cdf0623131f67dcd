package nettest

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// arrivals returns the numbers of those of n packets that arrive, in order.
func arrivals(w PacketFaults, direction uint64, n uint32) (out []uint32) {
	s := newFaultModel(w, direction, new(PacketCounts))
	take := func(list []packet) {
		for _, p := range list {
			out = append(out, binary.LittleEndian.Uint32(p.bytes))
		}
	}
	for i := range n {
		take(s.pass(binary.LittleEndian.AppendUint32(nil, i)))
	}
	take(s.releaseHeld())
	return out
}

// Failures must be reproducible.
func TestPacketFaults_SameSeed_SameFaults(t *testing.T) {
	const n = 10000
	w := PacketFaults{Seed: 7, LossFraction: 0.1, ReorderFraction: 0.2}
	one := arrivals(w, 0, n)
	if !slices.Equal(one, arrivals(w, 0, n)) {
		t.Error("two runs of one seed differ")
	}
	if slices.Equal(one, arrivals(w, 1, n)) {
		t.Error("both directions have the same faults")
	}
	if slices.Equal(one, arrivals(PacketFaults{Seed: 8, LossFraction: 0.1, ReorderFraction: 0.2}, 0, n)) {
		t.Error("two seeds have the same faults")
	}
	if !slices.Equal(one[:100], arrivals(w, 0, n/10)[:100]) {
		t.Error("later packets change the fate of earlier ones")
	}
	if lost := n - len(one); lost < n/20 || lost > n/5 {
		t.Errorf("%d of %d lost", lost, n)
	}
	if sorted := slices.Compact(slices.Sorted(slices.Values(one))); len(sorted) != len(one) {
		t.Errorf("%d of %d arrive twice", len(one)-len(sorted), n)
	}
	// A packet is overtaken by packets that are not held themselves. Lost ones do not count.
	swaps := 0
	for i, number := range one[1:] {
		if number < one[i] {
			swaps++
		}
	}
	if swaps < n/20 || swaps > n/4 {
		t.Errorf("%d of %d out of order", swaps, n)
	}
	if !slices.IsSorted(arrivals(PacketFaults{Seed: 7, LossFraction: 0.1}, 0, n)) {
		t.Error("packets are out of order without Reorder")
	}
	if got := arrivals(PacketFaults{Seed: 7}, 0, n); len(got) != n || !slices.IsSorted(got) {
		t.Error("packets differ without faults")
	}
}

func TestRelay_SameSeed_SameFaults(t *testing.T) {
	const n = 200
	w := PacketFaults{Seed: 3, LossFraction: 0.1, ReorderFraction: 0.2, PacketDelay: time.Millisecond, MaxJitter: time.Millisecond, holdLimit: time.Second}
	want := arrivals(w, 0, n)
	for range 2 {
		h := New(t, Link{Faults: &w})
		open := func(host int, port uint16) (c *net.UDPConn) {
			err := h.On(host, func() (err error) {
				c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(h.Addr(host, 0), port)))
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			return c
		}
		from, to := open(0, 0), open(1, 0)
		if err := to.SetDeadline(time.Now().Add(testTimeout)); err != nil {
			t.Fatal(err)
		}
		for i := range uint32(n) {
			if _, err := from.WriteTo(binary.LittleEndian.AppendUint32(nil, i), to.LocalAddr()); err != nil {
				t.Fatal(err)
			}
		}
		var got []uint32
		for range want {
			b := make([]byte, 4)
			if _, err := to.Read(b); err != nil {
				t.Fatalf("%v after %v, want %v", err, got, want)
			}
			got = append(got, binary.LittleEndian.Uint32(b))
		}
		if !slices.Equal(got, want) {
			t.Errorf("arrived %v, want %v", got, want)
		}
		if m := h.Counts(0); m.Packets.Load() != n || int(m.Lost.Load()) != n-len(want) || m.Reordered.Load() == 0 {
			t.Errorf("%d packets, %d lost, %d overtaken", m.Packets.Load(), m.Lost.Load(), m.Reordered.Load())
		}
		if err := to.SetDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if n, err := to.Read(make([]byte, 4)); err == nil {
			t.Errorf("%d bytes more", n)
		}
	}
}

func TestWeather_LargestPacket_DropsLargerOnes(t *testing.T) {
	s := newFaultModel(PacketFaults{LargestPacket: 1500}, 0, new(PacketCounts))
	if out := s.pass(make([]byte, 1500)); len(out) != 1 {
		t.Error("a packet of LargestPacket bytes is lost")
	}
	if out := s.pass(make([]byte, 1501)); len(out) != 0 || s.packetCounts.Lost.Load() != 1 {
		t.Error("a larger packet passes")
	}
}

// TCP repairs the faults, at a lower speed.
func TestLink_PacketFaults_StreamIsComplete(t *testing.T) {
	h := New(t, Link{Faults: &PacketFaults{Seed: 5, LossFraction: 0.02, ReorderFraction: 0.05, PacketDelay: time.Millisecond}})
	c := connect(t, h, 0)
	if err := pingPong(c); err != nil {
		t.Fatal(err)
	}
	t.Logf("1 MiB in %v", measureTransfer(t, c, 1<<20))
}
