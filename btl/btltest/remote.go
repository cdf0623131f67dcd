package btltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
)

// remoteCases are about btl.RemoteReader; a module without it skips them.
func remoteCases() claims {
	return claims{
		kittest.Of("ReadCopiesWhatThePeerExposed", 2, readCopies),
		kittest.Of("PartsOfAllocatedMemoryAreRead", 2, readParts),
		kittest.Of("NothingIsReadThatThePeerDoesNotDescribe", 2, readBehind),
		kittest.Of("GarbageDescriptionIsAnErrorAndHarmsNobodyElse", 3, readGarbage),
		kittest.Of("AllocateAndFreeForEverGrowsNothing", 2, allocateForEver),
		kittest.Of("FreeTakesOnlyWhatAllocateReturned", 2, freeTwice),
		kittest.Of("NotesSayWhichWaysAreOnOrOff", 2, notesSay),
	}
}

// readers are two processes with a path both ways and their ability.
func (w *world) readers(ctx context.Context, a, b *node) (ra, rb btl.RemoteReader, err error) {
	ra, okA := framework.As[btl.RemoteReader](a.module)
	rb, okB := framework.As[btl.RemoteReader](b.module)
	if !okA || !okB {
		return nil, nil, fmt.Errorf("%w: it reads no peer's memory", ErrSkip)
	}
	ep, err := a.connect(b)
	if err != nil {
		return nil, nil, err
	}
	frame := fill(1, 10)
	if err := w.send(ctx, a, ep, frame); err != nil {
		return nil, nil, err
	}
	return ra, rb, w.expect(ctx, b, a, [][]byte{frame})
}

// remotePair is the usual start of a case: a exposes, b reads.
func (w *world) remotePair(ctx context.Context) (a, b *node, ra, rb btl.RemoteReader, err error) {
	if a, b, err = w.pair(); err != nil {
		return
	}
	ra, rb, err = w.readers(ctx, a, b)
	return
}

// expose describes memory with the lock held.
func (n *node) expose(buf []byte, registered bool) (r btl.Remote, ok bool) {
	reader, _ := framework.As[btl.RemoteReader](n.module)
	n.do(func() { r, ok = reader.Expose(buf, registered) })
	return r, ok
}

// canRead asks with the lock held.
func (n *node) canRead(from *node, r btl.Remote, size int64) (err error) {
	reader, _ := framework.As[btl.RemoteReader](n.module)
	n.do(func() { err = reader.CanRead(from.life, r, size) })
	return err
}

// readAll reads all of dst from an offset on, in as many calls as it takes.
func (n *node) readAll(from *node, r btl.Remote, offset int64, dst []byte) (err error) {
	reader, _ := framework.As[btl.RemoteReader](n.module)
	for done := 0; done < len(dst); {
		k := 0
		n.do(func() { k, err = reader.Read(from.life, r, offset+int64(done), dst[done:]) })
		if err != nil {
			return err
		}
		if k < 1 || k > len(dst)-done {
			return fmt.Errorf("a read of %d bytes returned %d", len(dst)-done, k)
		}
		done += k
	}
	return nil
}

// largeSize is a message that every module with the ability should read at once:
// above what frames are better for, in several calls, not a round number.
const largeSize = 3<<20 + 4097

// words checks that an error can be shown to a person.
func words(err error) error {
	if len(err.Error()) < 10 {
		return fmt.Errorf("the reason is only %q", err)
	}
	return nil
}

func readCopies(ctx context.Context, w *world) error {
	a, b, ra, _, err := w.remotePair(ctx)
	if err != nil {
		return err
	}
	allocated, err := ra.Allocate(largeSize)
	if err != nil {
		return fmt.Errorf("allocate: %w", err)
	}
	if len(allocated) != largeSize {
		return fmt.Errorf("asked to allocate %d bytes, it returned %d", largeSize, len(allocated))
	}
	for i, x := range allocated {
		if x != 0 {
			return fmt.Errorf("allocated memory holds %#x at %d", x, i)
		}
	}
	ways := 0
	for _, buf := range [][]byte{allocated, make([]byte, largeSize)} {
		registered := &buf[0] == &allocated[0]
		copy(buf, fill(1, largeSize))
		r, ok := a.expose(buf, registered)
		if !ok {
			continue
		}
		if r == (btl.Remote{}) {
			return errors.New("the description of a buffer is that of nothing")
		}
		if err := b.canRead(a, r, largeSize); err != nil {
			if err := words(err); err != nil {
				return err
			}
			continue
		}
		ways++
		got := make([]byte, largeSize)
		if err := b.readAll(a, r, 0, got); err != nil {
			return fmt.Errorf("registered %v: %w", registered, err)
		}
		if !bytes.Equal(got, buf) {
			return fmt.Errorf("registered %v: the copy differs", registered)
		}
		// In pieces of any size, anywhere; what is around them stays.
		for k := range 50 {
			offset, n := (k*104729)%largeSize, 1+(k*k*977)%70000
			n = min(n, largeSize-offset)
			piece := fill(k, n+2)
			first, last := piece[0], piece[n+1]
			if err := b.readAll(a, r, int64(offset), piece[1:n+1]); err != nil {
				return fmt.Errorf("registered %v: %d bytes at %d: %w", registered, n, offset, err)
			}
			if piece[0] != first || piece[n+1] != last || !bytes.Equal(piece[1:n+1], buf[offset:offset+n]) {
				return fmt.Errorf("registered %v: %d bytes at %d: wrong bytes, or more than was asked for", registered, n, offset)
			}
		}
	}
	if err := ra.Free(allocated); err != nil {
		return fmt.Errorf("free: %w", err)
	}
	if ways == 0 {
		return fmt.Errorf("%w: no way to read is on: %q", ErrSkip, b.notes(a))
	}
	return nil
}

func (n *node) notes(peer *node) (notes []string) {
	reader, _ := framework.As[btl.RemoteReader](n.module)
	n.do(func() { notes = reader.Notes(peer.life) })
	return notes
}

func readParts(ctx context.Context, w *world) error {
	a, b, ra, _, err := w.remotePair(ctx)
	if err != nil {
		return err
	}
	// Several allocations: each address leads to its own.
	var all [][]byte
	for k := range 4 {
		mem, err := ra.Allocate(1<<20 + k)
		if err != nil {
			return fmt.Errorf("allocate: %w", err)
		}
		copy(mem, fill(k, len(mem)))
		all = append(all, mem)
	}
	for k, mem := range all {
		for _, part := range [][]byte{mem, mem[1:], mem[:len(mem)-1], mem[4097 : 4097+1<<19]} {
			r, ok := a.expose(part, true)
			if !ok || b.canRead(a, r, int64(len(part))) != nil {
				continue // readCopies says if nothing works
			}
			got := make([]byte, len(part))
			if err := b.readAll(a, r, 0, got); err != nil {
				return err
			}
			if !bytes.Equal(got, part) {
				return fmt.Errorf("allocation %d: a part of %d bytes differs", k, len(part))
			}
		}
	}
	for _, mem := range all {
		if err := ra.Free(mem); err != nil {
			return fmt.Errorf("free: %w", err)
		}
	}
	return nil
}

func readBehind(ctx context.Context, w *world) error {
	a, b, ra, rb, err := w.remotePair(ctx)
	if err != nil {
		return err
	}
	if _, ok := a.expose(nil, false); ok {
		return errors.New("no bytes at all are described")
	}
	if err := b.canRead(a, btl.Remote{}, 1<<20); err == nil {
		return errors.New("the zero description can be read")
	} else if err := words(err); err != nil {
		return err
	}
	mem, err := ra.Allocate(1 << 20)
	if err != nil {
		return err
	}
	for _, buf := range [][]byte{mem[:1<<19], make([]byte, 1<<19)} {
		r, ok := a.expose(buf, &buf[0] == &mem[0])
		if !ok || b.canRead(a, r, int64(len(buf))) != nil {
			continue
		}
		if err := b.canRead(a, r, int64(len(buf))+1); err == nil {
			return errors.New("more can be read than is described")
		}
		for _, at := range []struct {
			offset int64
			n      int
		}{{1 << 19, 1}, {1<<19 - 1, 2}, {0, 1<<19 + 1}, {-1, 1}, {math.MaxInt64, 1}, {math.MinInt64, 1}, {1 << 40, 1 << 19}} {
			dst := fill(1, at.n)
			before := bytes.Clone(dst)
			n, err := 0, error(nil)
			b.do(func() { n, err = rb.Read(a.life, r, at.offset, dst) })
			if err == nil || n != 0 || !bytes.Equal(dst, before) {
				return fmt.Errorf("%d bytes at %d of %d: read %d (%v)", at.n, at.offset, len(buf), n, err)
			}
		}
	}
	return ra.Free(mem)
}

func readGarbage(ctx context.Context, w *world) error {
	a, b, _, rb, err := w.remotePair(ctx)
	if err != nil {
		return err
	}
	var c *node
	if a != b {
		c = w.nodes[2]
		if _, _, err := w.readers(ctx, c, b); err != nil {
			return err
		}
	}
	// What b reads from c works before and after.
	buf := fill(1, largeSize)
	fromC := func() (bool, error) {
		if c == nil {
			return false, nil
		}
		rc, _ := framework.As[btl.RemoteReader](c.module)
		mem, err := rc.Allocate(largeSize)
		if err != nil {
			return false, err
		}
		copy(mem, buf)
		works := false
		for _, m := range [][]byte{mem, buf} {
			r, ok := c.expose(m, &m[0] == &mem[0])
			if !ok || b.canRead(c, r, largeSize) != nil {
				continue
			}
			works = true
			got := make([]byte, largeSize)
			if err := b.readAll(c, r, 0, got); err != nil {
				return false, err
			}
			if !bytes.Equal(got, buf) {
				return false, errors.New("the copy differs")
			}
		}
		return works, rc.Free(mem)
	}
	before, err := fromC()
	if err != nil {
		return err
	}
	valid, _ := a.expose(buf, false)
	for k := range 2000 {
		r := valid
		switch {
		case k < 512: // one byte wrong
			r[k%len(r)] ^= byte(1 + k/len(r)*37)
		default:
			copy(r[:], fill(k, len(r)))
			clear(r[:k%5*4])
		}
		dst := fill(k, 100)
		n := 0
		b.do(func() {
			if err := rb.CanRead(a.life, r, 100); err == nil || k%2 == 0 {
				n, _ = rb.Read(a.life, r, int64(k%3*1000), dst[:90])
			}
		})
		if n < 0 || n > 90 || !bytes.Equal(dst[90:], fill(k, 100)[90:]) {
			return fmt.Errorf("description %x: read %d of 90 bytes, or wrote behind them", r, n)
		}
	}
	after, err := fromC()
	if err != nil {
		return fmt.Errorf("after another peer's garbage: %w", err)
	}
	if before && !after {
		return fmt.Errorf("one peer's garbage turned reading off for another: %q", b.notes(c))
	}
	return nil
}

func allocateForEver(ctx context.Context, w *world) error {
	a, b, ra, _, err := w.remotePair(ctx)
	if err != nil {
		return err
	}
	var before resources
	const cycles, settled = 400, 20
	for k := range cycles {
		if k == settled {
			before = w.resources()
		}
		mem, err := ra.Allocate(300_000)
		if err != nil {
			return fmt.Errorf("cycle %d: %w", k, err)
		}
		mem[k] = byte(k)
		if r, ok := a.expose(mem, true); ok && b.canRead(a, r, int64(len(mem))) == nil {
			got := make([]byte, len(mem))
			if err := b.readAll(a, r, 0, got); err != nil {
				return fmt.Errorf("cycle %d: %w", k, err)
			}
			if !bytes.Equal(got, mem) {
				return fmt.Errorf("cycle %d: the copy differs: an earlier cycle's memory?", k)
			}
		}
		if err := ra.Free(mem); err != nil {
			return fmt.Errorf("cycle %d: %w", k, err)
		}
	}
	after := w.resources()
	// A reader may keep the latest until it looks again.
	after.mappings--
	if after.more(before) {
		return fmt.Errorf("%d cycles: %v before, %v after", cycles-settled, before, after)
	}
	return nil
}

func freeTwice(ctx context.Context, w *world) error {
	_, _, ra, _, err := w.remotePair(ctx)
	if err != nil {
		return err
	}
	mem, err := ra.Allocate(5000)
	if err != nil {
		return err
	}
	for what, bad := range map[string][]byte{"no memory": nil, "other memory": make([]byte, 5000), "a part": mem[1:], "a shorter part": mem[:100]} {
		if err := ra.Free(bad); err == nil {
			return fmt.Errorf("free takes %s", what)
		} else if err := words(err); err != nil {
			return err
		}
	}
	mem[4999] = 1 // still there
	if err := ra.Free(mem); err != nil {
		return err
	}
	if err := ra.Free(mem); err == nil {
		return errors.New("free takes the same memory twice")
	}
	for _, n := range []int{0, -1, math.MinInt} {
		if _, err := ra.Allocate(n); err == nil {
			return fmt.Errorf("allocate of %d bytes succeeds", n)
		}
	}
	if _, err := ra.Allocate(math.MaxInt); err == nil {
		return errors.New("allocate of all there is succeeds")
	}
	return nil
}

func notesSay(ctx context.Context, w *world) error {
	a, b, _, rb, err := w.remotePair(ctx)
	if err != nil {
		return err
	}
	for _, peer := range []framework.Life{a.life, {ID: framework.MakeProcID(0, 77), Nonce: 1}} {
		var notes []string
		b.do(func() { notes = rb.Notes(peer) })
		if len(notes) == 0 {
			return errors.New("there are no notes")
		}
		for _, note := range notes {
			if len(note) < 10 {
				return fmt.Errorf("a note says only %q", note)
			}
		}
	}
	return nil
}
