package btltest

import (
	"bytes"

	"github.com/ferrympi/ferry/btl"
)

// copier is a process that lets another one, which has greeted it, write into its memory.
type copier struct {
	*remote
	shares, writes btl.Copier
}

// copier skips where the other process can't write.
func (w *world) copier() *copier {
	r := w.remote()
	c := &copier{r, ability[btl.Copier](w, r.reader.module), ability[btl.Copier](w, r.peer.module)}
	if err := c.canWrite(); err != nil {
		w.words("CanWrite", err)
		w.Skipf("it can't write: %v", err)
	}
	return c
}

func (c *copier) canWrite() (err error) {
	c.peer.do(func() { err = c.writes.CanWrite(c.reader.peer.Life) })
	return err
}

func (c *copier) share(buf []byte) (s btl.Share) {
	c.reader.do(func() { s = c.shares.Share(c.peer.peer.Life, buf) })
	return s
}

func (c *copier) write(r btl.Remote, src []byte) (more bool, err error) {
	c.peer.do(func() { more, err = c.writes.Write(c.reader.peer.Life, r, src) })
	return more, err
}

// shareWhole has the sides take turns in any way: each byte is copied once.
func (w *world) shareWhole() {
	c := w.copier()
	for k := range 12 {
		size := []int{1, 5000, 70_001, 1 << 20}[k%4]
		got, want := pattern(k, size+2), pattern(k, size+2)
		src := pattern(k+1, size)
		copy(want[1:], src)
		s := c.share(got[1 : size+1])
		if s == nil {
			w.Fatalf("share %d: there is no place for it", k)
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
			w.Fatalf("share %d is whole, and not over", k)
		}
		w.Same("a shared buffer, and what is around it", got, want)
	}
}

// shareOver writes by the description of a share that has ended, and of none.
func (w *world) shareOver() {
	c := w.copier()
	buf, src := make([]byte, 200_000), bytes.Repeat([]byte{1}, 200_000)
	s := c.share(buf)
	old := s.Remote()
	if !s.End() {
		w.Fatalf("nobody writes, and it does not end")
	}
	next := c.share(make([]byte, len(buf)))
	for _, r := range []btl.Remote{old, {}, {31: 1}, btl.Remote(pattern(3, len(old)))} {
		if more, _ := c.write(r, src); more {
			w.Fatalf("there is more to write by %x", r)
		}
	}
	w.Same("a buffer whose share was over", buf, make([]byte, len(buf)))
	if !next.End() {
		w.Fatalf("the next share does not end")
	}
}
