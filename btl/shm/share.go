package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cma"
	"github.com/ferrympi/ferry/internal/shmlayout"
)

// Copies by both sides (btl.Copier). The words that both change lie in the sender's slot of
// the receiver's inbox: docs/wire.md, "Shares".

// share is a buffer of this process into which one peer may write. Its place is used again
// and again.
type share struct {
	place  shmlayout.Share
	index  uint32
	number uint32 // of this use
	open   bool
	buf    []byte
	chunk  int
	chunks uint32
	front  uint32 // claimed here
	from   *inbound
	pid    int // of the peer; 0: not known
}

// Sizes of the pieces that are claimed at a time. Small ones let both sides end at the same
// time; each costs a system call, and a line that travels.
const (
	leastChunk = 16 << 10
	mostChunk  = 256 << 10
)

func chunkOf(size int) int {
	chunk := min(max((size/8+osPage-1)&^(osPage-1), leastChunk), mostChunk)
	return max(chunk, (size+shmlayout.MaxChunks-1)/shmlayout.MaxChunks)
}

// Share implements btl.Copier.
func (m *module) Share(peer framework.Life, buf []byte) btl.Share {
	p := m.in[peer]
	if p == nil || len(buf) == 0 {
		return nil
	}
	for i := range p.shares {
		s := &p.shares[i]
		if s.open {
			continue
		}
		m.shares = m.shares%(1<<24-1) + 1 // 0 is none
		*s = share{
			place: m.box.Slot(p.index).Share(i), index: uint32(i), number: m.shares,
			open: true, buf: buf, chunk: chunkOf(len(buf)), from: p,
		}
		if known, err := m.source(peer); err == nil && m.identify(known) == nil {
			s.pid = known.pid
		}
		s.chunks = uint32((len(buf) + s.chunk - 1) / s.chunk)
		m.table.open(p.index, s, peer.Nonce)
		s.place.Open(s.number)
		return s
	}
	return nil
}

// Remote implements btl.Share.
func (s *share) Remote() (r btl.Remote) {
	le := binary.LittleEndian
	le.PutUint32(r[0:], s.index)
	le.PutUint32(r[4:], s.number)
	le.PutUint64(r[8:], cma.Address(s.buf))
	le.PutUint64(r[16:], uint64(s.chunk))
	le.PutUint64(r[24:], uint64(len(s.buf)))
	return r
}

// claims returns what is claimed. ok is false if the word makes no sense: then the peer
// does as it likes anyway.
func (s *share) claims() (c shmlayout.Claims, ok bool) {
	c = s.place.Claims()
	return c, c.Number == s.number && c.Front == s.front && c.Front <= s.chunks && c.Back <= s.chunks-c.Front
}

// Claim implements btl.Share.
func (s *share) Claim() (offset int64, n int) {
	for {
		c, ok := s.claims()
		if !ok || c.Front+c.Back == s.chunks {
			return 0, 0
		}
		next := c
		next.Front++
		if !s.place.Claim(c, next) {
			continue
		}
		s.front++
		offset = int64(c.Front) * int64(s.chunk)
		return offset, min(s.chunk, len(s.buf)-int(offset))
	}
}

// State implements btl.Share. What has been written is looked at first: a piece that was
// given back meanwhile counts as written otherwise.
func (s *share) State() (left, writing, stopped bool) {
	done := s.place.Done()
	c, ok := s.claims()
	if !ok {
		return false, false, true
	}
	return c.Front+c.Back < s.chunks, c.Back != done&^shmlayout.Stopped, done&shmlayout.Stopped != 0
}

// End implements btl.Share.
func (s *share) End() (over bool) {
	for s.open {
		c, ok := s.claims()
		if !ok {
			break
		}
		if left := s.chunks - c.Front - c.Back; left > 0 {
			next := c
			next.Front += left
			if s.place.Claim(c, next) {
				s.front = next.Front
			}
			continue
		}
		if _, writing, _ := s.State(); writing && !s.deserted() {
			return false
		}
		break
	}
	s.from.m.table.close(s.from.index, s)
	s.open, s.buf = false, nil
	return true
}

// deserted reports whether the peer can't be writing: it has ended its path, which it does not in the
// middle of a piece, or has died.
func (s *share) deserted() bool {
	return !s.from.stands() || s.pid != 0 && errors.Is(unix.Kill(s.pid, 0), unix.ESRCH)
}

// KindOf implements btl.Copier.
func (m *module) KindOf(r btl.Remote) btl.Memory {
	if binary.LittleEndian.Uint32(r[4:]) != 0 {
		return btl.Allocated
	}
	return btl.Ordinary
}

// Forced implements btl.Copier. Processes may have other values of single_copy: what a peer
// does not offer is not forced.
func (m *module) Forced(r btl.Remote, size int64) error {
	if m.copy.forced == nil {
		return nil
	}
	offered := binary.LittleEndian.Uint64(r[8:]) != 0
	if m.copy.only == wayMemory {
		offered = m.KindOf(r) == btl.Allocated
	}
	if offered && size >= m.copy.min[m.copy.only] {
		return m.copy.forced
	}
	return nil
}

// CanWrite implements btl.Copier. Whoever may read may write.
func (m *module) CanWrite(peer framework.Life) error {
	s, err := m.source(peer)
	if err != nil {
		return err
	}
	if s.noWrite != nil {
		return s.noWrite
	}
	return m.usable(s, wayCMA, math.MaxInt64)
}

// Write implements btl.Copier.
func (m *module) Write(peer framework.Life, r btl.Remote, src []byte) (more bool, err error) {
	e := m.out[peer]
	if e == nil || e.far == nil {
		return false, errNoPath
	}
	s, err := m.source(peer)
	if err != nil {
		return false, err
	}
	le := binary.LittleEndian
	index, number, address := le.Uint32(r[0:]), le.Uint32(r[4:]), le.Uint64(r[8:])
	chunk, length := le.Uint64(r[16:]), le.Uint64(r[24:])
	chunks := uint64(0)
	if chunk > 0 {
		chunks = (length + chunk - 1) / chunk
	}
	if index >= shmlayout.Shares || number == 0 || address == 0 || length != uint64(len(src)) || length > math.MaxInt64 ||
		chunk > length && chunk > mostChunk || chunks == 0 || chunks > shmlayout.MaxChunks || address > math.MaxUint64-length {
		return false, fmt.Errorf("the peer shares %d bytes in pieces of %d for a message of %d", length, chunk, len(src))
	}
	place := e.slot.Share(int(index))
	var c shmlayout.Claims
	for {
		c = place.Claims()
		if c.Number != number || uint64(c.Front)+uint64(c.Back) >= chunks {
			s.shared[index] = btl.Remote{}
			return false, nil // over
		}
		next := c
		next.Back++
		if place.Claim(c, next) {
			c = next
			break
		}
	}
	begin := (chunks - uint64(c.Back)) * chunk
	part := src[begin:min(begin+chunk, length)]
	if err = m.usable(s, wayCMA, math.MaxInt64); err == nil {
		err = m.checkShared(s, e.slotIndex, index, r)
	}
	for at := address + begin; err == nil && len(part) > 0; {
		var n int
		if n, err = m.writeVM(s.pid, part, at); err != nil {
			err = vmError("process_vm_writev", err, s.pid)
		}
		part, at = part[n:], at+uint64(n)
	}
	if err == nil {
		place.AddWritten()
		e.bell.Ring()
		if more = uint64(c.Front)+uint64(c.Back) < chunks; !more {
			s.shared[index] = btl.Remote{}
		}
		return more, nil
	}
	// Nobody but this process changes the number of its own claims.
	for {
		c = place.Claims()
		next := c
		if next.Back--; c.Number != number || c.Back == 0 || place.Claim(c, next) {
			break
		}
	}
	place.Stop()
	e.bell.Ring()
	if s.noWrite == nil {
		s.noWrite = m.failure(s, "write memory", err)
	}
	return false, s.noWrite
}

// writeVM copies into the memory of another process: cma.Write, or in tests something that
// fails.
type writeVM func(pid int, src []byte, at uint64) (int, error)
