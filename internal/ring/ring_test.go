package ring

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"testing"

	"pgregory.net/rapid"
)

func reserve(p *Producer, n int, isWide bool) []byte {
	if isWide {
		return p.ReserveWide(n)
	}
	return p.Reserve(n)
}

// The payload consists of valid words of later laps, at all offsets.
func TestNext_PayloadEqualsWord_IsNoFrame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{MinCells, MinCells, MinCells, 16384}).Draw(t, "cells")
		header, cells := OnHeap(n)
		p, c := NewProducer(header, cells), NewConsumer(header, cells)
		var queue [][]byte
		size := rapid.OneOf(rapid.IntRange(1, 130), rapid.IntRange(1, FrameLimit(n)))
		for range 400 {
			if rapid.Bool().Draw(t, "send") {
				k := size.Draw(t, "size")
				b := reserve(p, k, rapid.Bool().Draw(t, "wide"))
				if b == nil {
					continue
				}
				word := uint64(p.lap) + uint64(rapid.IntRange(0, 2).Draw(t, "lap")) | 8<<32
				for i := range b {
					b[i] = byte(word >> (8 * ((i + WordSize) % 8)))
				}
				k = rapid.IntRange(max(1, k-70), k).Draw(t, "commit")
				queue = append(queue, bytes.Clone(b[:k]))
				p.Commit(k)
				continue
			}
			f, err := c.Next()
			if err != nil {
				t.Fatal(err)
			}
			if len(queue) == 0 {
				if f != nil {
					t.Fatalf("an empty ring gave a frame of %d bytes", len(f))
				}
				continue
			}
			if !bytes.Equal(f, queue[0]) {
				t.Fatalf("got %d bytes %x, want %d bytes", len(f), f[:min(16, len(f))], len(queue[0]))
			}
			queue = queue[1:]
			c.Release()
		}
	})
}

// Credits return in batches, and large frames wrap early. A frame of any size must fit into an
// empty ring nevertheless.
func TestReserve_AllFramesConsumed_NeverBlocks(t *testing.T) {
	for _, n := range []int{MinCells, 1024, 4096, 16384} {
		rng := rand.New(rand.NewPCG(1, uint64(n)))
		header, cells := OnHeap(n)
		p, c := NewProducer(header, cells), NewConsumer(header, cells)
		limit := FrameLimit(n)
		same := 1 // Streams of equal frames alternate with mixtures.
		var waiting []int
		for i := range 60000 {
			if i%200 == 0 {
				same = 1 + rng.IntN(limit)
			}
			k := same
			if i/1000%2 == 1 {
				k = 1 + rng.IntN(limit)>>rng.IntN(12)
			}
			if reserve(p, k, i/50%4 == 0) != nil {
				p.Commit(k)
				waiting = append(waiting, k)
			} else if len(waiting) == 0 {
				t.Fatalf("ring of %d: frame %d of %d bytes would block on an empty ring", n, i, k)
			}
			take := rng.IntN(3)
			if i/400%3 == 0 || rng.IntN(50) == 0 {
				take = len(waiting)
			}
			for ; take > 0 && len(waiting) > 0; take-- {
				if f, err := c.Next(); err != nil || len(f) != waiting[0] {
					t.Fatalf("ring of %d, frame %d: got %d bytes, want %d: %v", n, i, len(f), waiting[0], err)
				}
				c.Release()
				waiting = waiting[1:]
			}
		}
	}
}

func TestReserve_StreamOfLargeFrames_UsesStartOfRing(t *testing.T) {
	if last := maxOffset(t, false); last > 2*hotBytes {
		t.Errorf("frames went up to byte %d of the ring", last)
	}
}

// Small frames in between do not wrap early either.
func TestReserveWide_StreamOfLargeFrames_UsesWholeRing(t *testing.T) {
	if last := maxOffset(t, true); last < 16384*CellSize*9/10 {
		t.Errorf("frames went up to byte %d of the ring", last)
	}
}

// maxOffset returns the largest offset of 1,000 large and small frames in turn, each consumed
// at once, in a ring of 1 MiB.
func maxOffset(t *testing.T, isWide bool) (offset uint64) {
	header, cells := OnHeap(16384)
	p, c := NewProducer(header, cells), NewConsumer(header, cells)
	for range 1000 {
		for _, n := range []int{64 << 10, 30} {
			if reserve(p, n, isWide && n > smallFrame) == nil {
				t.Fatal("no room")
			}
			offset = max(offset, p.offset)
			p.Commit(n)
			if f, err := c.Next(); err != nil || f == nil {
				t.Fatal(err)
			}
			c.Release()
		}
	}
	return offset
}

func TestRing_TwoGoroutines_KeepsFramesAndOrder(t *testing.T) {
	const n, frames = 256, 200000
	header, cells := OnHeap(n)
	p, c := NewProducer(header, cells), NewConsumer(header, cells)
	go func() {
		rng := rand.New(rand.NewPCG(3, 4))
		for i := range frames {
			k := 8 + rng.IntN(300)
			b := p.Reserve(k)
			for b == nil {
				runtime.Gosched()
				b = p.Reserve(k)
			}
			binary.LittleEndian.PutUint64(b, uint64(i))
			for j := 8; j < k; j++ {
				b[j] = byte(i + j)
			}
			p.Commit(k)
		}
	}()
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range frames {
		k := 8 + rng.IntN(300)
		var f []byte
		for f == nil {
			var err error
			if f, err = c.Next(); err != nil {
				t.Fatal(err)
			}
			if f == nil {
				runtime.Gosched()
			}
		}
		if len(f) != k || binary.LittleEndian.Uint64(f) != uint64(i) {
			t.Fatalf("frame %d: %d bytes, number %d", i, len(f), binary.LittleEndian.Uint64(f))
		}
		for j := 8; j < k; j++ {
			if f[j] != byte(i+j) {
				t.Fatalf("frame %d damaged at %d", i, j)
			}
		}
		c.Release()
	}
}

func TestRelease_SleepingProducer_RingsOnce(t *testing.T) {
	const n = MinCells
	header, cells := OnHeap(n)
	p, c := NewProducer(header, cells), NewConsumer(header, cells)
	sent := 0
	for p.Reserve(1) != nil {
		p.Commit(1)
		sent++
	}
	if !p.Wait(1) {
		t.Fatal("Wait returned false for a full ring")
	}
	rings := 0
	for range sent {
		if _, err := c.Next(); err != nil {
			t.Fatal(err)
		}
		if c.Release() {
			rings++
		}
	}
	if rings != 1 {
		t.Fatalf("%d rings, want 1", rings)
	}
	if p.Wait(1) {
		t.Fatal("Wait returned true although there is room")
	}
}

// FuzzDamagedRing reads arbitrary cells. The consumer may return errors or frames, within the
// ring.
func FuzzDamagedRing(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 8, 0, 0, 0}, uint16(0))
	f.Add([]byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}, uint16(0))
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0x80}, uint16(63*64))
	f.Fuzz(func(t *testing.T, data []byte, at uint16) {
		const n = MinCells
		header, cells := OnHeap(n)
		c := NewConsumer(header, cells)
		copy(cells[int(at)%len(cells):], data)
		for range 3 * n {
			b, err := c.Next()
			if err != nil || b == nil {
				return
			}
			if len(b) > FrameLimit(n) {
				t.Fatalf("frame of %d bytes", len(b))
			}
			c.Release()
		}
	})
}

// The lap counter overflows from the last 32-bit value to 1, since 0 marks cleared words.
func TestRing_LapOverflow_SkipsZero(t *testing.T) {
	header, cells := OnHeap(MinCells)
	p, c := NewProducer(header, cells), NewConsumer(header, cells)
	const lap = 1<<32 - 2
	start := uint64(lap) * p.size
	p.head, p.writableEnd, p.lap = start, start+p.size, lap+1
	c.tail, c.returned, c.lap = start, start, lap+1
	p.consumed.Store(start / CellSize)
	for i := range 200 {
		if f, err := c.Next(); f != nil || err != nil {
			t.Fatalf("frame %d arrived before its send: %d bytes, %v", i, len(f), err)
		}
		if p.Reserve(200) == nil {
			t.Fatalf("frame %d would block", i)
		}
		p.Commit(200)
		if f, err := c.Next(); err != nil || len(f) != 200 {
			t.Fatalf("frame %d: %d bytes, %v", i, len(f), err)
		}
		c.Release()
	}
}

// A shortened frame wraps, and the cells that it skips hold words in the payload of an earlier
// lap.
func TestNext_SkippedCells_AreNoFrames(t *testing.T) {
	header, cells := OnHeap(MinCells)
	p, c := NewProducer(header, cells), NewConsumer(header, cells)
	send := func(reserve, commit int, fill func([]byte)) {
		b := p.Reserve(reserve)
		if fill != nil {
			fill(b)
		}
		p.Commit(commit)
		if f, err := c.Next(); err != nil || len(f) != commit {
			t.Fatalf("%d bytes, %v", len(f), err)
		}
		c.Release()
	}
	for range MinCells - 12 {
		send(8, 8, nil)
	}
	send(12*CellSize-WordSize, 12*CellSize-WordSize, func(b []byte) {
		for i := 0; i+8 <= len(b); i += 8 {
			copy(b[i:], []byte{3, 0, 0, 0, 8, 0, 0, 0}) // A word of lap 3.
		}
	})
	for range MinCells - 6 {
		send(8, 8, nil)
	}
	send(10*CellSize, 8, nil)
	for i := range MinCells - 2 {
		if f, err := c.Next(); f != nil || err != nil {
			t.Fatalf("after %d more: unsent frame of %d bytes, %v", i, len(f), err)
		}
		send(8, 8, nil)
	}
}

// The bytes are at the position of the next word, in laps of frames of one cell.
func TestNext_UncommittedBytes_AreNoFrame(t *testing.T) {
	header, cells := OnHeap(MinCells)
	p, c := NewProducer(header, cells), NewConsumer(header, cells)
	for lap := range 5 {
		for range MinCells - 4 {
			p.Reserve(8)
			p.Commit(8)
			if f, err := c.Next(); err != nil || len(f) != 8 {
				t.Fatalf("lap %d: %d bytes, %v", lap, len(f), err)
			}
			c.Release()
		}
		b := p.Reserve(3*CellSize - WordSize)
		for i := 0; i+8 <= len(b); i += 8 {
			copy(b[i:], []byte{byte(p.lap), 0, 0, 0, 8, 0, 0, 0}) // A word of this lap.
		}
		p.Commit(8)
		if f, err := c.Next(); err != nil || len(f) != 8 {
			t.Fatalf("lap %d: %d bytes, %v", lap, len(f), err)
		}
		c.Release()
		if f, err := c.Next(); f != nil || err != nil {
			t.Fatalf("lap %d: unsent frame of %d bytes, %v", lap, len(f), err)
		}
		for p.offset != 0 {
			p.Reserve(8)
			p.Commit(8)
			c.Next()
			c.Release()
		}
	}
}

// Each cleared word moves one more cache line between the processors.
func TestCommit_SmallFramesOverOldFrames_ClearNoWord(t *testing.T) {
	header, cells := OnHeap(16384)
	p, c := NewProducer(header, cells), NewConsumer(header, cells)
	send := func(n int) {
		if p.Reserve(n) == nil {
			t.Fatal("no room")
		}
		p.Commit(n)
		if f, err := c.Next(); err != nil || len(f) != n {
			t.Fatalf("%d bytes, %v", len(f), err)
		}
		c.Release()
	}
	for range 3 {
		send(40 * CellSize)
	}
	for range 3 * 16384 {
		send(8)
	}
	for i := range 16384 {
		send(8)
		if p.offset-p.dirtyFrom < p.dirtyTo-p.dirtyFrom {
			t.Fatalf("after %d frames of 8 bytes the cell at %d is cleared; dirty from %d to %d", i, p.offset, p.dirtyFrom, p.dirtyTo)
		}
	}
}
