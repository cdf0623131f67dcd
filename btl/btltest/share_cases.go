package btltest

import (
	"bytes"

	"github.com/ferrympi/ferry/btl"
)

// copier is a process whose memory another one may write to, after a frame from the latter.
type copier struct {
	*remote
	sharer, writer btl.Copier
}

// copier skips the case if the other process cannot write.
func (w *world) copier() *copier {
	r := w.remote()
	c := &copier{r, r.readerRMA.Copier(), r.ownerRMA.Copier()}
	if c.sharer == nil {
		w.Skipf("only the receiver copies")
	}
	if err := c.canWrite(); err != nil {
		w.checkErrorText("CanWrite", err)
		w.Skipf("the module cannot write: %v", err)
	}
	return c
}

func (c *copier) canWrite() (err error) {
	c.peer.locked(func() { err = c.writer.CanWrite(c.reader.peer.Incarnation) })
	return err
}

func (c *copier) share(buf []byte) (s btl.Share) {
	c.reader.locked(func() { s = c.sharer.Share(c.peer.peer.Incarnation, buf) })
	return s
}

func (c *copier) write(r btl.Remote, src []byte) (more bool, err error) {
	c.peer.locked(func() { more, err = c.writer.Write(c.reader.peer.Incarnation, r, src) })
	return more, err
}

// shareCompletes interleaves the copies of both sides in several orders. Each byte is copied once.
func (w *world) shareCompletes() {
	c := w.copier()
	for k := range 12 {
		size := []int{1, 5000, 70_001, 1 << 20}[k%4]
		got, want := pattern(k, size+2), pattern(k, size+2)
		src := pattern(k+1, size)
		copy(want[1:], src)
		s := c.share(got[1 : size+1])
		if s == nil {
			w.Fatalf("share %d was refused", k)
		}
		for turn, more := 0, true; ; turn++ {
			if more && (turn*k)%3 != 1 {
				var err error
				more, err = c.write(s.Remote(), src)
				w.Check(err)
			} else if offset, n := s.Claim(); n > 0 {
				copy(got[1+int(offset):1+int(offset)+n], src[offset:])
			}
			if left, writing, _ := s.State(); !left && !writing {
				break
			}
		}
		if !s.End() {
			w.Fatalf("share %d is complete, but End returned false", k)
		}
		w.Same("a shared buffer with its surroundings", got, want)
	}
}

// shareEnded writes with descriptions of ended and of unknown shares.
func (w *world) shareEnded() {
	c := w.copier()
	buf, src := make([]byte, 200_000), bytes.Repeat([]byte{1}, 200_000)
	s := c.share(buf)
	old := s.Remote()
	if !s.End() {
		w.Fatalf("End returned false without a writer")
	}
	next := c.share(make([]byte, len(buf)))
	for _, r := range []btl.Remote{old, {}, {31: 1}, btl.Remote(pattern(3, len(old)))} {
		if more, _ := c.write(r, src); more {
			w.Fatalf("Write with description %x reported more chunks", r)
		}
	}
	w.Same("the buffer of an ended share", buf, make([]byte, len(buf)))
	if !next.End() {
		w.Fatalf("the next share does not end")
	}
}
