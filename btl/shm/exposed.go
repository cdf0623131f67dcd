package shm

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cma"
	"github.com/ferrympi/ferry/internal/shmlayout"
)

// Every process of the user can write to inboxes and rings, and so forge their contents. Copies by the kernel between
// the memory of two processes rest on two things that only the owner of the memory can change:
//
//   - The mark of its inbox, a lock whose start follows from the owner's identity. The kernel vouches for the process
//     id of the lock's holder, and for the lock's length, which is the address of the table.
//   - The table, in the owner's private memory: the proof, and an entry for each share, empty unless it is open.
//
// docs/decisions/one-copy.md has the attacks.

// entrySize is the size of an entry of the table: the description of an open share, and the nonce of the
// process that may write there.
const entrySize = len(btl.Remote{}) + 8

// table is the table of this process.
type table []byte

func newTable(slots int, nonce uint64) table {
	t := make(table, shmlayout.ProofSize+slots*shmlayout.Shares*entrySize)
	proof := shmlayout.Proof(nonce)
	copy(t, proof[:])
	return t
}

// entryOffset returns the offset of the entry of a share in a table.
func entryOffset(slot int, share uint32) uint64 {
	return shmlayout.ProofSize + uint64(slot*shmlayout.Shares+int(share))*uint64(entrySize)
}

func newEntry(r btl.Remote, writer uint64) (e [entrySize]byte) {
	copy(e[:], r[:])
	binary.LittleEndian.PutUint64(e[len(r):], writer)
	return e
}

// open lets the process with that nonce write to a share.
func (t table) open(slot int, s *share, writer uint64) {
	e := newEntry(s.Remote(), writer)
	copy(t[entryOffset(slot, s.index):], e[:])
}

func (t table) close(slot int, s *share) { clear(t[entryOffset(slot, s.index):][:entrySize]) }

// markOf returns the start of the mark of an identity: 62 bits, which leave room for the length.
func markOf(proc framework.Proc, nonce uint64) int64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %d %d", proc.Namespace, proc.Rank, nonce))
	return int64(binary.LittleEndian.Uint64(sum[:]) >> 2)
}

// setMark publishes the process id and the address of the table. Without it, peers do not copy by the kernel.
func (m *module) setMark() {
	err := m.near.segment.Mark(markOf(m.env.Identity.Proc, m.env.Self.Nonce), int64(cma.Address(m.table)))
	if err != nil {
		m.env.Logger.Info("btl shm: peers cannot copy from or to the memory of this process", "error", err)
	}
}

// identify finds the process of a peer and the address of its table, once.
func (m *module) identify(s *source) error {
	if s.pid != 0 || s.notIdentified != nil {
		return s.notIdentified
	}
	far := m.far(s.peer)
	if far == nil {
		return errNoPath
	}
	pid, address, err := far.segment.Marker(markOf(m.env.Worlds.Proc(s.peer.ID), s.peer.Nonce))
	var published uint32
	if err == nil {
		err = guarded(func() error { published = far.box.PID(); return nil })
	}
	if err == nil && int(published) != pid {
		err = fmt.Errorf("process %d here is not the peer, which is process %d for itself: its process ids are those of another container", published, pid)
	}
	if s.notIdentified = err; err == nil {
		s.pid, s.table = pid, uint64(address)
	}
	return err
}

var errNotShared = errors.New("the peer's process has not shared that memory with this one")

// checkShared compares a description with the table of the peer's process, once for each share.
func (m *module) checkShared(s *source, slot int, index uint32, r btl.Remote) error {
	if s.shared[index] == r {
		return nil
	}
	var got [entrySize]byte
	n, err := m.readVM(s.pid, got[:], s.table+entryOffset(slot, index))
	if err != nil {
		return vmError("process_vm_readv", err, s.pid)
	}
	if n != len(got) || got != newEntry(r, m.env.Self.Nonce) {
		return errNotShared
	}
	s.shared[index] = r
	return nil
}

// ownPID is the process id for the inbox's header.
func ownPID() uint32 { return uint32(os.Getpid()) }
