package area

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/internal/cpu"
)

// machine has the costs of writing and reading 1 KiB by mode.
type machine struct{ write, read [storeModes]uint64 }

var (
	near     = machine{write: [storeModes]uint64{280, 110}, read: [storeModes]uint64{70, 170}}
	far      = machine{write: [storeModes]uint64{1120, 110}, read: [storeModes]uint64{170, 170}}
	quick    = machine{write: [storeModes]uint64{40, 110}, read: [storeModes]uint64{30, 170}}
	dearRead = machine{write: [storeModes]uint64{120, 20}, read: [storeModes]uint64{40, 200}} // The writer alone would stream.
)

// best returns the mode with the least total cost.
func (m machine) best() storeMode {
	if m.write[streamed]+m.read[streamed] < m.write[stored]+m.read[stored] {
		return streamed
	}
	return stored
}

// run simulates posts, and returns the number in the best mode and the relative excess of the total cost.
func (m machine) run(w *storeSelector, r *rand.Rand, posts int) (best int, excess float64) {
	const size = 16 << 10
	var spent, least uint64
	for range posts {
		mode := w.nextMode()
		noise := func(ticks uint64) uint64 {
			ticks = ticks * size >> 10 * (90 + r.Uint64N(20)) / 100
			if r.IntN(200) == 0 { // Interrupted.
				ticks += 100_000
			}
			return ticks
		}
		w.recordWrite(mode, noise(m.write[mode]), size)
		w.peerRead[mode].update(noise(m.read[mode]), size)
		spent += m.write[mode] + m.read[mode]
		least += m.write[m.best()] + m.read[m.best()]
		if mode == m.best() {
			best++
		}
	}
	return best, float64(spent)/float64(least) - 1
}

func TestStoreSelector_StableMachine_FindsCheaperMode(t *testing.T) {
	const seeds = 100
	for name, m := range map[string]machine{"near": near, "far": far, "quick": quick, "dear to read": dearRead} {
		var sum, most float64
		for seed := range uint64(seeds) {
			w := newStoreSelector()
			r := rand.New(rand.NewPCG(seed, 0))
			m.run(&w, r, 4*storeShape.Probe)
			_, excess := m.run(&w, r, 10_000)
			sum, most = sum+excess, max(most, excess)
		}
		t.Logf("%s: excess cost %.3f on average, %.3f at most", name, sum/seeds, most)
		if sum/seeds > 0.025 || most > 0.1 {
			t.Errorf("%s: excess cost %.3f on average, %.3f at most", name, sum/seeds, most)
		}
	}
}

func TestStoreSelector_CostsChange_SwitchesMode(t *testing.T) {
	for seed := range uint64(30) {
		w := newStoreSelector()
		r := rand.New(rand.NewPCG(seed, 0))
		quick.run(&w, r, 2_000)
		far.run(&w, r, 150)
		if best, _ := far.run(&w, r, 200); best < 180 {
			t.Fatalf("seed %d: %d of 200 posts were streamed after a change", seed, best)
		}
		quick.run(&w, r, 10_000)
		if best, _ := quick.run(&w, r, 2_000); best < 1_800 {
			t.Fatalf("seed %d: %d of 2000 posts were stored after a change back", seed, best)
		}
	}
}

func TestPost_AllSizesAndModes_ArriveIntact(t *testing.T) {
	l := New(coll.Shape{Size: 2}, 1<<20)
	x, _ := openPair(t, l)
	turn := uint32(0)
	for _, n := range []int{minSelectSize - 1, minSelectSize, minSelectSize + 1, minSelectSize + 63, minSelectSize + 64, maxChunk - 8, maxChunk} {
		for i := range 3 * storeShape.Probe {
			turn++
			data := bytes.Repeat([]byte{byte(turn), byte(turn >> 8), byte(i)}, n/3+1)[:n]
			sender := newRun(l, x[0], turn, func(w Steps) { w.Post(coll.Ref{}, n) })
			receiver := newRun(l, x[1], turn, func(w Steps) { w.Pass(); w.Fetch(0, 0, coll.Ref{Slot: coll.Out}, n) })
			sender.call.In, receiver.call.Out = data, make([]byte, n)
			expectDone(t, sender, true)
			expectDone(t, receiver, true)
			if !bytes.Equal(receiver.call.Out, data) {
				t.Fatalf("%d bytes, repetition %d: data differs", n, i)
			}
		}
	}
	if all := x[0].writer.modes.Estimates(); cpu.Streams && len(all) < int(storeModes) {
		t.Errorf("a mode was never measured: %v", all)
	}
}
