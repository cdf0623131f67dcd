package ring

import (
	"bytes"
	"testing"

	"github.com/ferrympi/ferry/btl"
)

// The size of the memory may come from a peer.
func TestNewProducer_InvalidMemory_ReturnsError(t *testing.T) {
	mem := make([]byte, 1<<20)
	for _, c := range []struct{ header, cells int }{
		{0, 0}, {HeaderSize, 0}, {HeaderSize, CellSize}, {HeaderSize, 3 * MinCells * CellSize}, {HeaderSize, MinCells*CellSize + 1}, {HeaderSize - 1, MinCells * CellSize},
	} {
		if _, err := NewProducer(mem[:c.header], mem[:c.cells]); err == nil {
			t.Errorf("a producer on a header of %d bytes and cells of %d", c.header, c.cells)
		}
		if _, err := NewConsumer(mem[:c.header], mem[:c.cells]); err == nil {
			t.Errorf("a consumer on a header of %d bytes and cells of %d", c.header, c.cells)
		}
	}
	if _, err := NewConsumer(mem[1:1+HeaderSize], mem[:MinCells*CellSize]); err == nil {
		t.Error("a consumer on a header that is not aligned")
	}
}

func TestRing_Frames_ArriveInOrder(t *testing.T) {
	p, c := New(MinCells)
	for i := range 1000 {
		payload := bytes.Repeat([]byte{byte(i)}, i%300)
		if i%2 == 0 {
			copy(p.Reserve(len(payload)+1), append(payload, 1))
			p.Commit(len(payload) + 1)
		} else if !p.SendShort(btl.ShortHeader{First: uint64(i)}, payload) {
			t.Fatal("no room in an empty ring")
		}
		f, err := c.Next()
		if err != nil || !bytes.Contains(f, payload) {
			t.Fatalf("frame %d: %x, %v", i, f, err)
		}
		c.Release()
	}
	if c.Ready() {
		t.Error("unsent frame in the ring")
	}
}
