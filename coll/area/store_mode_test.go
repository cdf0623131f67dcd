package area

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/internal/cpu"
)

// machine is what writing and reading a KiB takes, by manner.
type machine struct{ write, read [manners]uint64 }

var (
	near     = machine{write: [manners]uint64{280, 110}, read: [manners]uint64{70, 170}}
	far      = machine{write: [manners]uint64{1120, 110}, read: [manners]uint64{170, 170}}
	quick    = machine{write: [manners]uint64{40, 110}, read: [manners]uint64{30, 170}}
	dearRead = machine{write: [manners]uint64{120, 20}, read: [manners]uint64{40, 200}} // what is streamed seems cheap to who writes
)

// best is the manner that takes the two least.
func (m machine) best() manner {
	if m.write[streamed]+m.read[streamed] < m.write[stored]+m.read[stored] {
		return streamed
	}
	return stored
}

// run writes pieces, and returns how many of them went in the best manner, and how much longer all
// took than if all had.
func (m machine) run(w *writing, r *rand.Rand, pieces int) (best int, longer float64) {
	const size = 16 << 10
	var took, least uint64
	for range pieces {
		at := w.next()
		noise := func(ticks uint64) uint64 {
			ticks = ticks * size >> 10 * (90 + r.Uint64N(20)) / 100
			if r.IntN(200) == 0 { // it was interrupted
				ticks += 100_000
			}
			return ticks
		}
		w.wrote(noise(m.write[at]), size)
		w.told[at].add(noise(m.read[at]), size)
		took += m.write[at] + m.read[at]
		least += m.write[m.best()] + m.read[m.best()]
		if at == m.best() {
			best++
		}
	}
	return best, float64(took)/float64(least) - 1
}

func TestWritingFindsTheBetterManner(t *testing.T) {
	for name, m := range map[string]machine{"near": near, "far": far, "quick": quick, "dear to read": dearRead} {
		for seed := range uint64(30) {
			var w writing
			r := rand.New(rand.NewPCG(seed, 0))
			m.run(&w, r, 4*trial)
			if best, longer := m.run(&w, r, 10_000); best < 9_000 || longer > 0.05 {
				t.Fatalf("%s, seed %d: %d of 10000 pieces the better way; all took %.3f longer", name, seed, best, longer)
			}
		}
	}
}

// TestWritingFollowsAMachineThatChanges: where stores have become dear at once, and where they
// have become cheap with the next trial.
func TestWritingFollowsAMachineThatChanges(t *testing.T) {
	for seed := range uint64(30) {
		var w writing
		r := rand.New(rand.NewPCG(seed, 0))
		quick.run(&w, r, 2_000)
		if best, _ := far.run(&w, r, 200); best < 150 {
			t.Fatalf("seed %d: %d of 200 pieces were streamed after a change", seed, best)
		}
		quick.run(&w, r, 10_000)
		if best, _ := quick.run(&w, r, 2_000); best < 1_800 {
			t.Fatalf("seed %d: %d of 2000 pieces were stored after a change back", seed, best)
		}
	}
}

// TestPiecesArriveWholeHoweverWritten, of all lengths around those that count.
func TestPiecesArriveWholeHoweverWritten(t *testing.T) {
	l := New(coll.Shape{Size: 2}, 1<<20)
	x, _ := opened(t, l)
	turn := uint32(0)
	for _, n := range []int{worth - 1, worth, worth + 1, worth + 63, worth + 64, largestChunk - 8, largestChunk} {
		for i := range 3 * trial {
			turn++
			data := bytes.Repeat([]byte{byte(turn), byte(turn >> 8), byte(i)}, n/3+1)[:n]
			give := newPart(l, x[0], turn, func(w Steps) { w.Post(coll.Ref{}, n) })
			take := newPart(l, x[1], turn, func(w Steps) { w.Pass(); w.Fetch(0, 0, coll.Ref{Slot: coll.Out}, n) })
			give.call.In, take.call.Out = data, make([]byte, n)
			over(t, give, true)
			over(t, take, true)
			if !bytes.Equal(take.call.Out, data) {
				t.Fatalf("%d bytes, time %d: other data came", n, i)
			}
		}
	}
	if w := &x[0].w; cpu.Streams && (w.write[streamed] == 0 || w.write[stored] == 0) {
		t.Errorf("not both manners were tried: %v", w.write)
	}
}
