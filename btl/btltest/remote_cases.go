package btltest

import (
	"bytes"
	"math"
	"strings"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
)

// remoteCases are about btl.RMA. A module without it skips them.
func remoteCases() claims {
	return claims{
		kittest.New("ReadCopiesExposedMemory", 2, (*world).readCopies),
		kittest.New("ReadCopiesPartsOfAllocations", 2, (*world).readParts),
		kittest.New("ReadStaysInsideTheDescription", 2, (*world).readOutside),
		kittest.New("InvalidDescriptionAffectsNoOtherPeer", 3, (*world).readGarbage),
		kittest.New("AllocateAndFreeLeakNothing", 2, (*world).allocateRepeatedly),
		kittest.New("FreeAcceptsOnlyAllocations", 2, (*world).freeTwice),
		kittest.New("NotesListTheCopyMethods", 2, (*world).notesSay),
		kittest.New("SharedBufferIsComplete", 2, (*world).shareCompletes),
		kittest.New("EndedShareIsNotWritten", 2, (*world).shareEnded),
		kittest.New("NodeTableIsShared", 3, (*world).nodeTableShared),
	}
}

// remote is a process that reads memory of a peer, after a frame from the latter. owner is the
// peer's module, and reads its own.
type remote struct {
	world     *world
	reader    *node
	peer      *node
	readerRMA btl.RMA
	ownerRMA  btl.RMA
}

// remote returns a pair whose first process exposes memory and whose second one reads.
func (w *world) remote() *remote {
	a, b := w.senderAndReceiver()
	return w.newRemote(a, b)
}

func (w *world) newRemote(a, b *node) *remote {
	r := &remote{w, b, a, ability[btl.RMA](w, b.module), ability[btl.RMA](w, a.module)}
	a.greet(b)
	return r
}

// allocate returns memory of the peer with pattern k.
func (r *remote) allocate(k, n int) []byte {
	mem, err := r.ownerRMA.Allocate(n)
	r.world.Check(err)
	if len(mem) != n {
		r.world.Fatalf("Allocate(%d) returned %d bytes", n, len(mem))
	}
	r.world.Same("allocated memory", mem, make([]byte, n))
	copy(mem, pattern(k, n))
	return mem
}

// canRead calls CanRead with the lock held.
func (r *remote) canRead(d btl.Remote, size int) (err error) {
	r.reader.locked(func() { err = r.readerRMA.CanRead(r.peer.peer.Incarnation, d, int64(size)) })
	return err
}

// expose describes memory of the peer. It reports whether the process can read it.
func (r *remote) expose(buf []byte, allocated bool) (d btl.Remote, ok bool) {
	r.peer.locked(func() { d, ok = r.ownerRMA.Expose(buf, allocated) })
	if !ok {
		return d, false
	}
	if d == (btl.Remote{}) {
		r.world.Fatalf("Expose returned an empty description")
	}
	err := r.canRead(d, len(buf))
	if err != nil {
		r.world.checkErrorText("CanRead", err)
	}
	return d, err == nil
}

// checkRead reads n bytes at an offset in as many calls as necessary, and compares them with buf. Memory
// around the destination must be unchanged.
func (r *remote) checkRead(d btl.Remote, buf []byte, offset, n int) {
	got := pattern(offset, n+2)
	want := bytes.Clone(got)
	copy(want[1:n+1], buf[offset:])
	for done := 0; done < n; {
		k, err := r.read(d, int64(offset+done), got[1+done:n+1])
		r.world.Check(err)
		if k < 1 || k > n-done {
			r.world.Fatalf("a read of %d bytes returned %d", n-done, k)
		}
		done += k
	}
	r.world.Same("a copy with its surroundings", got, want)
}

func (r *remote) read(d btl.Remote, offset int64, dst []byte) (n int, err error) {
	r.reader.locked(func() { n, err = r.readerRMA.Read(r.peer.peer.Incarnation, d, offset, dst) })
	return n, err
}

func (r *remote) notes(of framework.Incarnation) (notes []string) {
	r.reader.locked(func() { notes = r.readerRMA.Notes(of) })
	return notes
}

// forEachMethod calls f with a part of allocated memory and with other memory of the peer, as far as the
// process can read it, and returns the number of calls.
func (r *remote) forEachMethod(n int, f func(buf []byte, d btl.Remote)) (ways int) {
	mem := r.allocate(1, n+4096)
	for i, buf := range [][]byte{mem[:n], pattern(1, n)} {
		if d, ok := r.expose(buf, i == 0); ok {
			f(buf, d)
			ways++
		}
	}
	r.world.Check(r.ownerRMA.Free(mem))
	return ways
}

// largeSize is the size of a message that every module with the ability should read. It is larger
// than the best sizes of frames, takes several calls, and is no round number.
const largeSize = 3<<20 + 4097

// readCopies reads everything, and parts of any size and offset.
func (w *world) readCopies() {
	r := w.remote()
	ways := r.forEachMethod(largeSize, func(buf []byte, d btl.Remote) {
		r.checkRead(d, buf, 0, largeSize)
		for k := range 50 {
			offset := k * 104729 % largeSize
			r.checkRead(d, buf, offset, min(1+k*k*977%70000, largeSize-offset))
		}
	})
	if ways == 0 {
		w.Skipf("no copy method is enabled: %s", strings.Join(r.notes(r.peer.peer.Incarnation), "; "))
	}
}

// readParts reads from several allocations, each by its own address.
func (w *world) readParts() {
	r := w.remote()
	var all [][]byte
	for k := range 4 {
		all = append(all, r.allocate(k, 1<<20+k))
	}
	for _, mem := range all {
		for _, part := range [][]byte{mem, mem[1:], mem[:len(mem)-1], mem[4097 : 4097+1<<19]} {
			if d, ok := r.expose(part, true); ok { // readCopies fails if no method works.
				r.checkRead(d, part, 0, len(part))
			}
		}
	}
	for _, mem := range all {
		w.Check(r.ownerRMA.Free(mem))
	}
}

func (w *world) readOutside() {
	r := w.remote()
	if _, ok := r.expose(nil, false); ok {
		w.Fatalf("Expose described an empty buffer")
	}
	w.checkErrorText("CanRead of the zero description", r.canRead(btl.Remote{}, 1<<20))
	const size = 1 << 19
	r.forEachMethod(size, func(_ []byte, d btl.Remote) {
		w.checkErrorText("CanRead of more than is described", r.canRead(d, size+1))
		for _, at := range []struct {
			offset int64
			n      int
		}{{size, 1}, {size - 1, 2}, {0, size + 1}, {-1, 1}, {math.MaxInt64, 1}, {math.MinInt64, 1}, {1 << 40, size}} {
			dst := pattern(1, at.n)
			if n, err := r.read(d, at.offset, dst); err == nil || n != 0 || !bytes.Equal(dst, pattern(1, at.n)) {
				w.Fatalf("%d bytes at %d of %d: read %d (%v)", at.n, at.offset, size, n, err)
			}
		}
	})
}

// readGarbage reads with invalid descriptions of a peer. Reads from another peer work before and
// after.
func (w *world) readGarbage() {
	r := w.remote()
	harmless := func() {}
	if r.peer != r.reader {
		other := w.newRemote(w.nodes[2], r.reader)
		read := func() int {
			return other.forEachMethod(largeSize, func(buf []byte, d btl.Remote) { other.checkRead(d, buf, 0, largeSize) })
		}
		before := read()
		harmless = func() {
			if after := read(); after < before {
				w.Fatalf("invalid descriptions of one peer disabled reads from another one: %q", other.notes(other.peer.peer.Incarnation))
			}
		}
	}
	valid, _ := r.expose(pattern(1, largeSize), false)
	for k := range 2000 {
		d := valid
		if k < 512 { // One wrong byte.
			d[k%len(d)] ^= byte(1 + k/len(d)*37)
		} else {
			copy(d[:], pattern(k, len(d)))
			clear(d[:k%5*4])
		}
		n, dst := 0, pattern(k, 100)
		if err := r.canRead(d, 100); err == nil || k%2 == 0 {
			n, _ = r.read(d, int64(k%3*1000), dst[:90])
		}
		if n < 0 || n > 90 || !bytes.Equal(dst[90:], pattern(k, 100)[90:]) {
			w.Fatalf("description %x: read %d of 90 bytes, or wrote past them", d, n)
		}
	}
	harmless()
}

func (w *world) allocateRepeatedly() {
	r := w.remote()
	w.checkLeaks(400, 20, func(k int) {
		mem := r.allocate(k, 300_000)
		if d, ok := r.expose(mem, true); ok {
			r.checkRead(d, mem, 0, len(mem)) // Not the memory of an earlier cycle.
		}
		w.Check(r.ownerRMA.Free(mem))
	})
}

func (w *world) freeTwice() {
	r := w.remote()
	mem := r.allocate(1, 5000)
	for what, bad := range map[string][]byte{"no memory": nil, "other memory": make([]byte, 5000), "a part": mem[1:], "a shorter part": mem[:100]} {
		w.checkErrorText("Free of "+what, r.ownerRMA.Free(bad))
	}
	mem[4999] = 1 // The memory is still allocated.
	w.Check(r.ownerRMA.Free(mem))
	w.checkErrorText("Free of what is free", r.ownerRMA.Free(mem))
	for _, n := range []int{0, -1, math.MinInt, math.MaxInt} {
		if _, err := r.ownerRMA.Allocate(n); err == nil {
			w.Fatalf("Allocate of %d bytes succeeds", n)
		}
	}
}

func (w *world) notesSay() {
	r := w.remote()
	for _, peer := range []framework.Incarnation{r.peer.peer.Incarnation, {ID: framework.MakeProcID(0, 77), Nonce: 1}} {
		notes := r.notes(peer)
		if len(notes) == 0 {
			w.Fatalf("Notes of %v returned nothing", peer)
		}
		for _, note := range notes {
			if len(note) < 10 {
				w.Fatalf("a note is too short: %q", note)
			}
		}
	}
}
