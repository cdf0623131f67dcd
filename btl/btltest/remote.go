package btltest

import (
	"bytes"
	"math"
	"strings"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
)

// remoteCases are about btl.RemoteReader; a module without it skips them.
func remoteCases() claims {
	return claims{
		kittest.New("ReadCopiesWhatThePeerExposed", 2, (*world).readCopies),
		kittest.New("PartsOfAllocatedMemoryAreRead", 2, (*world).readParts),
		kittest.New("NothingIsReadThatThePeerDoesNotDescribe", 2, (*world).readBehind),
		kittest.New("GarbageDescriptionIsAnErrorAndHarmsNobodyElse", 3, (*world).readGarbage),
		kittest.New("AllocateAndFreeForEverGrowsNothing", 2, (*world).allocateForEver),
		kittest.New("FreeTakesOnlyWhatAllocateReturned", 2, (*world).freeTwice),
		kittest.New("NotesSayWhichWaysAreOnOrOff", 2, (*world).notesSay),
		kittest.New("SharedBufferIsWholeWhoeverCopies", 2, (*world).shareWhole),
		kittest.New("NothingIsWrittenIntoAShareThatIsOver", 2, (*world).shareOver),
	}
}

// remote is a process that reads what another one, which has greeted it, exposes. Of the
// abilities, mem and Allocate are the other one's.
type remote struct {
	w      *world
	reader *node
	peer   *node
	reads  btl.RemoteReader
	mem    btl.RemoteReader
}

// remote has a pair's first process expose and its second one read.
func (w *world) remote() *remote {
	a, b := w.pair()
	return w.exposes(a, b)
}

func (w *world) exposes(a, b *node) *remote {
	r := &remote{w, b, a, ability[btl.RemoteReader](w, b.module), ability[btl.RemoteReader](w, a.module)}
	a.greet(b)
	return r
}

// allocate returns memory of the peer, which holds pattern k.
func (r *remote) allocate(k, n int) []byte {
	mem, err := r.mem.Allocate(n)
	r.w.Check(err)
	if len(mem) != n {
		r.w.Fatalf("asked to allocate %d bytes, it returned %d", n, len(mem))
	}
	r.w.Same("allocated memory", mem, make([]byte, n))
	copy(mem, pattern(k, n))
	return mem
}

// canRead asks with the lock held.
func (r *remote) canRead(d btl.Remote, size int) (err error) {
	r.reader.do(func() { err = r.reads.CanRead(r.peer.peer.Life, d, int64(size)) })
	return err
}

// expose describes memory of the peer, if the process can read it.
func (r *remote) expose(buf []byte, allocated bool) (d btl.Remote, ok bool) {
	r.peer.do(func() { d, ok = r.mem.Expose(buf, allocated) })
	if !ok {
		return d, false
	}
	if d == (btl.Remote{}) {
		r.w.Fatalf("the description of a buffer is empty")
	}
	err := r.canRead(d, len(buf))
	if err != nil {
		r.w.words("CanRead", err)
	}
	return d, err == nil
}

// same reads n bytes at an offset in as many calls as it takes: those of buf, and what is
// around them here stays.
func (r *remote) same(d btl.Remote, buf []byte, offset, n int) {
	got := pattern(offset, n+2)
	want := bytes.Clone(got)
	copy(want[1:n+1], buf[offset:])
	for done := 0; done < n; {
		k, err := r.read(d, int64(offset+done), got[1+done:n+1])
		r.w.Check(err)
		if k < 1 || k > n-done {
			r.w.Fatalf("a read of %d bytes returned %d", n-done, k)
		}
		done += k
	}
	r.w.Same("a copy, and what is around it", got, want)
}

func (r *remote) read(d btl.Remote, offset int64, dst []byte) (n int, err error) {
	r.reader.do(func() { n, err = r.reads.Read(r.peer.peer.Life, d, offset, dst) })
	return n, err
}

func (r *remote) notes(of framework.Life) (notes []string) {
	r.reader.do(func() { notes = r.reads.Notes(of) })
	return notes
}

// each calls f with memory of the peer that is a part of what is allocated, and with other
// memory, where the process can read it, and returns how many those were.
func (r *remote) each(n int, f func(buf []byte, d btl.Remote)) (ways int) {
	mem := r.allocate(1, n+4096)
	for i, buf := range [][]byte{mem[:n], pattern(1, n)} {
		if d, ok := r.expose(buf, i == 0); ok {
			f(buf, d)
			ways++
		}
	}
	r.w.Check(r.mem.Free(mem))
	return ways
}

// largeSize is a message that every module with the ability should read at once:
// above what frames are better for, in several calls, not a round number.
const largeSize = 3<<20 + 4097

// readCopies reads all, and pieces of any size, anywhere.
func (w *world) readCopies() {
	r := w.remote()
	ways := r.each(largeSize, func(buf []byte, d btl.Remote) {
		r.same(d, buf, 0, largeSize)
		for k := range 50 {
			offset := k * 104729 % largeSize
			r.same(d, buf, offset, min(1+k*k*977%70000, largeSize-offset))
		}
	})
	if ways == 0 {
		w.Skipf("it has no way to read that is on: %s", strings.Join(r.notes(r.peer.peer.Life), "; "))
	}
}

// readParts reads of several allocations: each address leads to its own.
func (w *world) readParts() {
	r := w.remote()
	var all [][]byte
	for k := range 4 {
		all = append(all, r.allocate(k, 1<<20+k))
	}
	for _, mem := range all {
		for _, part := range [][]byte{mem, mem[1:], mem[:len(mem)-1], mem[4097 : 4097+1<<19]} {
			if d, ok := r.expose(part, true); ok { // readCopies says if nothing works
				r.same(d, part, 0, len(part))
			}
		}
	}
	for _, mem := range all {
		w.Check(r.mem.Free(mem))
	}
}

func (w *world) readBehind() {
	r := w.remote()
	if _, ok := r.expose(nil, false); ok {
		w.Fatalf("no bytes at all are described")
	}
	w.words("CanRead of the zero description", r.canRead(btl.Remote{}, 1<<20))
	const size = 1 << 19
	r.each(size, func(_ []byte, d btl.Remote) {
		w.words("CanRead of more than is described", r.canRead(d, size+1))
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

// readGarbage reads what a peer describes wrongly; what another one describes is read
// before and after.
func (w *world) readGarbage() {
	r := w.remote()
	harmless := func() {}
	if r.peer != r.reader {
		other := w.exposes(w.nodes[2], r.reader)
		read := func() int {
			return other.each(largeSize, func(buf []byte, d btl.Remote) { other.same(d, buf, 0, largeSize) })
		}
		before := read()
		harmless = func() {
			if after := read(); after < before {
				w.Fatalf("one peer's garbage turned reading off for another: %q", other.notes(other.peer.peer.Life))
			}
		}
	}
	valid, _ := r.expose(pattern(1, largeSize), false)
	for k := range 2000 {
		d := valid
		if k < 512 { // one byte wrong
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

func (w *world) allocateForEver() {
	r := w.remote()
	w.growsNothing(400, 20, func(k int) {
		mem := r.allocate(k, 300_000)
		if d, ok := r.expose(mem, true); ok {
			r.same(d, mem, 0, len(mem)) // not an earlier cycle's memory
		}
		w.Check(r.mem.Free(mem))
	})
}

func (w *world) freeTwice() {
	r := w.remote()
	mem := r.allocate(1, 5000)
	for what, bad := range map[string][]byte{"no memory": nil, "other memory": make([]byte, 5000), "a part": mem[1:], "a shorter part": mem[:100]} {
		w.words("Free of "+what, r.mem.Free(bad))
	}
	mem[4999] = 1 // still there
	w.Check(r.mem.Free(mem))
	w.words("Free of what is free", r.mem.Free(mem))
	for _, n := range []int{0, -1, math.MinInt, math.MaxInt} {
		if _, err := r.mem.Allocate(n); err == nil {
			w.Fatalf("Allocate of %d bytes succeeds", n)
		}
	}
}

func (w *world) notesSay() {
	r := w.remote()
	for _, peer := range []framework.Life{r.peer.peer.Life, {ID: framework.MakeProcID(0, 77), Nonce: 1}} {
		notes := r.notes(peer)
		if len(notes) == 0 {
			w.Fatalf("there are no notes of %v", peer)
		}
		for _, note := range notes {
			if len(note) < 10 {
				w.Fatalf("a note says only %q", note)
			}
		}
	}
}
