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

// Copies by both sides (btl.Copier). The words that both sides change are in the sender's slot of
// the receiver's inbox (docs/wire.md, "Shares").

// share is a buffer of this process into which one peer may write. The inbound path reuses it for
// successive messages.
type share struct {
	// Words in shared memory.
	words      shmlayout.Share
	index      uint32
	generation uint32
	isOpen     bool
	buf        []byte
	chunk      int
	chunks     uint32
	// Chunks that this process has claimed from the front.
	claimedFront uint32
	path         *inbound
	// Process id of the peer, 0 if unknown.
	peerPID int
}

// Limits of the chunks that are claimed at a time. Small chunks let both sides finish at the same
// time. Each one costs a system call and a cache-line transfer.
const (
	minChunk = 16 << 10
	maxChunk = 256 << 10
)

func chunkSize(size int) int {
	chunk := min(max((size/8+osPage-1)&^(osPage-1), minChunk), maxChunk)
	return max(chunk, (size+shmlayout.MaxChunks-1)/shmlayout.MaxChunks)
}

// Copier implements btl.RMA.
func (m *module) Copier() btl.Copier { return m }

// Share implements btl.Copier.
func (m *module) Share(peer framework.Incarnation, buf []byte) btl.Share {
	p := m.inboundPaths[peer]
	if p == nil || len(buf) == 0 {
		return nil
	}
	for i := range p.shares {
		s := &p.shares[i]
		if s.isOpen {
			continue
		}
		m.lastShare = m.lastShare%(1<<24-1) + 1 // Generation 0 means none.
		*s = share{
			words: m.inbox.Slot(p.slotIndex).Share(i), index: uint32(i), generation: m.lastShare,
			isOpen: true, buf: buf, chunk: chunkSize(len(buf)), path: p,
		}
		if known, err := m.peerMemoryOf(peer); err == nil && m.identify(known) == nil {
			s.peerPID = known.pid
		}
		s.chunks = uint32((len(buf) + s.chunk - 1) / s.chunk)
		m.shareTable.open(p.slotIndex, s, peer.Nonce)
		s.words.Open(s.generation)
		return s
	}
	return nil
}

// Remote implements btl.Share.
func (s *share) Remote() (r btl.Remote) {
	le := binary.LittleEndian
	le.PutUint32(r[0:], s.index)
	le.PutUint32(r[4:], s.generation)
	le.PutUint64(r[8:], cma.Address(s.buf))
	le.PutUint64(r[16:], uint64(s.chunk))
	le.PutUint64(r[24:], uint64(len(s.buf)))
	return r
}

// loadClaims returns the current claims. ok is false if they are inconsistent, which only a
// misbehaving peer causes.
func (s *share) loadClaims() (c shmlayout.Claims, ok bool) {
	c = s.words.Claims()
	return c, c.Number == s.generation && c.Front == s.claimedFront && c.Front <= s.chunks && c.Back <= s.chunks-c.Front
}

// Claim implements btl.Share.
func (s *share) Claim() (offset int64, n int) {
	for {
		c, ok := s.loadClaims()
		if !ok || c.Front+c.Back == s.chunks {
			return 0, 0
		}
		next := c
		next.Front++
		if !s.words.Claim(c, next) {
			continue
		}
		s.claimedFront++
		offset = int64(c.Front) * int64(s.chunk)
		return offset, min(s.chunk, len(s.buf)-int(offset))
	}
}

// State implements btl.Share. It loads the count of written chunks before the claims. In the other
// order, a chunk that the peer returned in between would count as written.
func (s *share) State() (left, writing, stopped bool) {
	done := s.words.Done()
	c, ok := s.loadClaims()
	if !ok {
		return false, false, true
	}
	return c.Front+c.Back < s.chunks, c.Back != done&^shmlayout.Stopped, done&shmlayout.Stopped != 0
}

// End implements btl.Share.
func (s *share) End() (over bool) {
	for s.isOpen {
		c, ok := s.loadClaims()
		if !ok {
			break
		}
		if left := s.chunks - c.Front - c.Back; left > 0 {
			next := c
			next.Front += left
			if s.words.Claim(c, next) {
				s.claimedFront = next.Front
			}
			continue
		}
		if _, writing, _ := s.State(); writing && !s.isAbandoned() {
			return false
		}
		break
	}
	s.path.module.shareTable.close(s.path.slotIndex, s)
	s.isOpen, s.buf = false, nil
	return true
}

// isAbandoned reports whether the peer cannot be writing. It is dead or has ended its path, which
// it never does in the middle of a chunk.
func (s *share) isAbandoned() bool {
	return !s.path.isOpen() || s.peerPID != 0 && errors.Is(unix.Kill(s.peerPID, 0), unix.ESRCH)
}

// KindOf implements btl.Copier.
func (m *module) KindOf(r btl.Remote) btl.Memory {
	if binary.LittleEndian.Uint32(r[4:]) != 0 {
		return btl.Allocated
	}
	return btl.Ordinary
}

// Forced implements btl.Copier. The peer may have another value of single_copy. A method without a
// description from the peer is not forced.
func (m *module) Forced(r btl.Remote, size int64) error {
	if m.policy.forcedReason == nil {
		return nil
	}
	offered := binary.LittleEndian.Uint64(r[8:]) != 0
	if m.policy.forcedMethod == viaMapping {
		offered = m.KindOf(r) == btl.Allocated
	}
	if offered && size >= m.policy.minSize[m.policy.forcedMethod] {
		return m.policy.forcedReason
	}
	return nil
}

// CanWrite implements btl.Copier. The permission to read is also that to write.
func (m *module) CanWrite(peer framework.Incarnation) error {
	s, err := m.peerMemoryOf(peer)
	if err != nil {
		return err
	}
	if s.writeFailure != nil {
		return s.writeFailure
	}
	return m.checkUsable(s, viaCMA, math.MaxInt64)
}

// Write implements btl.Copier.
func (m *module) Write(peer framework.Incarnation, r btl.Remote, src []byte) (more bool, err error) {
	e := m.endpoints[peer]
	if e == nil || e.remote == nil {
		return false, errNoPath
	}
	s, err := m.peerMemoryOf(peer)
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
		chunk > length && chunk > maxChunk || chunks == 0 || chunks > shmlayout.MaxChunks || address > math.MaxUint64-length {
		return false, fmt.Errorf("invalid share of %d bytes in chunks of %d for a message of %d bytes", length, chunk, len(src))
	}
	place := e.slot.Share(int(index))
	var c shmlayout.Claims
	for {
		c = place.Claims()
		if c.Number != number || uint64(c.Front)+uint64(c.Back) >= chunks {
			s.checkedShares[index] = btl.Remote{}
			return false, nil // The share has ended.
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
	if err = m.checkUsable(s, viaCMA, math.MaxInt64); err == nil {
		err = m.checkShared(s, e.slotIndex, index, r)
	}
	for at := address + begin; err == nil && len(part) > 0; {
		var n int
		if n, err = m.writeVM(s.pid, part, at); err != nil {
			err = describeVMError("process_vm_writev", err, s.pid)
		}
		part, at = part[n:], at+uint64(n)
	}
	if err == nil {
		place.AddWritten()
		e.bell.Ring()
		if more = uint64(c.Front)+uint64(c.Back) < chunks; !more {
			s.checkedShares[index] = btl.Remote{}
		}
		return more, nil
	}
	// Return the claim. Only this process changes the number of its claims.
	for {
		c = place.Claims()
		next := c
		if next.Back--; c.Number != number || c.Back == 0 || place.Claim(c, next) {
			break
		}
	}
	place.Stop()
	e.bell.Ring()
	if s.writeFailure == nil {
		s.writeFailure = m.recordFailure(s, "write memory", err)
	}
	return false, s.writeFailure
}

// writeFunc copies to the memory of another process. It is cma.Write, except in tests.
type writeFunc func(pid int, src []byte, at uint64) (int, error)
