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

// Every process of the user can write to inboxes and rings, and can forge their contents. A copy by
// the kernel between two processes therefore relies on two items that only the owner of the memory
// can change:
//
// - The mark of the inbox, a lock whose start is derived from the owner's identity. The kernel vouches for the process id of the lock's holder and for the lock's length, which is the address of the table.
// - The table in the owner's private memory, which has the proof and an entry for each share. The entry is zero unless the share is open.
//
// docs/decisions/one-copy.md describes the attacks.

// entrySize is the size of a table entry, which has the description of an open share and the nonce
// of the process that may write there.
const entrySize = len(btl.Remote{}) + 8

// table is the share table of a process.
type table []byte

func newTable(slots int, nonce uint64) table {
	t := make(table, shmlayout.ProofSize+slots*shmlayout.Shares*entrySize)
	proof := shmlayout.Proof(nonce)
	copy(t, proof[:])
	return t
}

// entryOffset returns the offset of a share's entry in a table.
func entryOffset(slot int, share uint32) uint64 {
	return shmlayout.ProofSize + uint64(slot*shmlayout.Shares+int(share))*uint64(entrySize)
}

func newEntry(r btl.Remote, writer uint64) (e [entrySize]byte) {
	copy(e[:], r[:])
	binary.LittleEndian.PutUint64(e[len(r):], writer)
	return e
}

// open allows the process with nonce writer to write to share s.
func (t table) open(slot int, s *share, writer uint64) {
	e := newEntry(s.Remote(), writer)
	copy(t[entryOffset(slot, s.index):], e[:])
}

func (t table) close(slot int, s *share) { clear(t[entryOffset(slot, s.index):][:entrySize]) }

// markStart returns the start of the mark of an identity. It has 62 bits, which leaves space for
// the length.
func markStart(proc framework.Proc, nonce uint64) int64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %d %d", proc.Namespace, proc.Rank, nonce))
	return int64(binary.LittleEndian.Uint64(sum[:]) >> 2)
}

// setMark publishes the process id and the address of the table. Peers do not copy by the kernel
// without it.
func (m *module) setMark() {
	err := m.inboxFile.segment.Mark(markStart(m.env.Identity.Proc, m.env.Self.Nonce), int64(cma.Address(m.shareTable)))
	if err != nil {
		m.env.Logger.Info("btl shm: peers cannot copy from or to the memory of this process", "error", err)
	}
}

// identify determines the process id of a peer and the address of its table. It caches the result.
func (m *module) identify(s *peerMemory) error {
	if s.pid != 0 || s.identifyFailure != nil {
		return s.identifyFailure
	}
	far := m.remoteInboxOf(s.peer)
	if far == nil {
		return errNoPath
	}
	pid, address, err := far.segment.Marker(markStart(m.env.Worlds.Proc(s.peer.ID), s.peer.Nonce))
	var published uint32
	if err == nil {
		err = guarded(func() error { published = far.inbox.PID(); return nil })
	}
	if err == nil && int(published) != pid {
		err = fmt.Errorf("process id %d of the peer is %d here: the peer runs in another PID namespace (container)", published, pid)
	}
	if s.identifyFailure = err; err == nil {
		s.pid, s.tableAddress = pid, uint64(address)
	}
	return err
}

var errNotShared = errors.New("the peer has not shared that memory with this process")

// checkShared compares a description with the table of the peer. It caches a match for each share.
func (m *module) checkShared(s *peerMemory, slot int, index uint32, r btl.Remote) error {
	if s.checkedShares[index] == r {
		return nil
	}
	var got [entrySize]byte
	n, err := m.readVM(s.pid, got[:], s.tableAddress+entryOffset(slot, index))
	if err != nil {
		return describeVMError("process_vm_readv", err, s.pid)
	}
	if n != len(got) || got != newEntry(r, m.env.Self.Nonce) {
		return errNotShared
	}
	s.checkedShares[index] = r
	return nil
}

// ownPID returns the process id for the header of the inbox.
func ownPID() uint32 { return uint32(os.Getpid()) }
