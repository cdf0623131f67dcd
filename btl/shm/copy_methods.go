package shm

import (
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/shmlayout"
)

// copyMethod is a method by which a receiver copies a message out of the sender's memory.
type copyMethod uint8

const (
	viaMapping copyMethod = iota // The sender's memory is a region, mapped in this process.
	viaCMA                       // The kernel copies between address spaces.
	methodCount
)

// copyPolicy has the effect of the parameters on single copies. The errors are created once,
// because each message needs them.
type copyPolicy struct {
	// Limit of one Read, in bytes.
	readStep int
	// Smallest message of each method.
	minSize [methodCount]int64
	// Reason against a method for all sizes, nil if it is allowed.
	disallowed [methodCount]error
	// Reason against a method for messages below minSize.
	belowMin [methodCount]error
	// The only method that single_copy allows, if forcedReason is set.
	forcedMethod copyMethod
	// Error that names the parameter, nil unless single_copy forces a method.
	forcedReason error
}

// newCopyPolicy derives the policy from the parameters. The selector of the PML chooses among the
// allowed methods.
func newCopyPolicy(p *params) copyPolicy {
	c := copyPolicy{
		readStep: int(p.CopyStep),
		minSize:  [methodCount]int64{viaMapping: int64(p.MemoryMin), viaCMA: int64(p.CMAMin)},
		belowMin: [methodCount]error{
			viaMapping: fmt.Errorf("messages below btl.shm.memory_min=%v go as frames", p.MemoryMin),
			viaCMA:     fmt.Errorf("messages below btl.shm.cma_min=%v go as frames", p.CMAMin),
		},
	}
	refused := fmt.Errorf("btl.shm.single_copy=%s", p.SingleCopy)
	forced := fmt.Errorf("%w allows no other way", refused)
	switch p.SingleCopy {
	case "off":
		c.disallowed = [methodCount]error{refused, refused}
	case "cma":
		c.forcedMethod, c.forcedReason = viaCMA, forced
		c.disallowed[viaMapping] = refused
	case "memory":
		c.forcedMethod, c.forcedReason = viaMapping, forced
		c.disallowed[viaCMA] = refused
	}
	return c
}

// allows reports whether memory is described for a method. Reader and owner may have different
// parameters. The reader then finds no description or refuses.
func (c *copyPolicy) allows(w copyMethod) bool { return c.disallowed[w] == nil }

// readFrom returns btl.Caps.ReadFrom.
func (c *copyPolicy) readFrom() int {
	if !c.allows(viaMapping) {
		return 0
	}
	return max(int(c.minSize[viaMapping]), 1)
}

// peerMemory is the state of single copies with one peer.
type peerMemory struct {
	peer framework.Incarnation
	// Name of the peer's inbox.
	name string
	// Whether probeCMA has run.
	isProbed bool
	// Permanent reason against each method for this peer.
	failures [methodCount]error
	// Permanent reason against writes to this peer.
	writeFailure error

	// The following fields are explained in peer_identity.go.
	pid int // Process id of the peer that the kernel vouches for, 0 until identify succeeds.
	// Address of the table in that process.
	tableAddress    uint64
	identifyFailure error
	// Shares that have been compared with the table.
	checkedShares [shmlayout.Shares]btl.Remote
}

// remoteInboxOf returns the peer's inbox while there is a path from or to it, or nil.
func (m *module) remoteInboxOf(peer framework.Incarnation) *remoteInbox {
	if p := m.inboundPaths[peer]; p != nil {
		return p.remote
	}
	if e := m.endpoints[peer]; e != nil {
		return e.remote
	}
	return nil
}

var (
	errNoPath    = errors.New("there is no path to the peer")
	errNotProbed = errors.New("not probed: the peer left before a message was large enough")
)

// peerMemoryOf returns the state of a peer. The protocol calls it several times for each message.
func (m *module) peerMemoryOf(peer framework.Incarnation) (*peerMemory, error) {
	if m.lastPeerMemory != nil && m.lastPeerMemory.peer == peer {
		return m.lastPeerMemory, nil
	}
	far := m.remoteInboxOf(peer)
	if far == nil {
		return nil, errNoPath
	}
	s := m.peerMemories[peer]
	if s == nil {
		s = &peerMemory{peer: peer, name: far.name}
		m.peerMemories[peer] = s
	}
	m.lastPeerMemory = s
	return s, nil
}

// disableMethod stores err as the permanent reason against a method for a peer.
func (m *module) disableMethod(s *peerMemory, w copyMethod, err error) error {
	s.failures[w] = m.recordFailure(s, "read memory", err)
	return s.failures[w]
}

func (m *module) recordFailure(s *peerMemory, op string, err error) error {
	err = &framework.TransportError{Component: "btl shm", Peer: m.env.Worlds.Proc(s.peer.ID).String(), Op: op, Err: err}
	m.env.Logger.Info("btl shm: single-copy method disabled for one peer", "error", err)
	return err
}

// CanRead implements btl.RMA.
func (m *module) CanRead(peer framework.Incarnation, r btl.Remote, size int64) error {
	d, err := decodeDescription(r)
	if err != nil {
		return err
	}
	s, err := m.peerMemoryOf(peer)
	if err != nil {
		return err
	}
	if size < 0 || uint64(size) > d.length {
		return fmt.Errorf("the peer describes %d bytes, want %d", d.length, size)
	}
	if d.regionNumber != 0 {
		if err = m.checkUsable(s, viaMapping, size); err == nil {
			_, err = m.describedBytes(s, d)
		}
		if err == nil {
			return nil
		}
	}
	if d.address != 0 {
		if failed := m.checkUsable(s, viaCMA, size); failed == nil || err == nil {
			err = failed
		}
	}
	return err
}

// checkUsable returns the reason against a method for messages of that size from a peer, or nil.
func (m *module) checkUsable(s *peerMemory, w copyMethod, size int64) error {
	if err := m.policy.disallowed[w]; err != nil {
		return err
	}
	if err := s.failures[w]; err != nil {
		return err
	}
	if size < m.policy.minSize[w] {
		return m.policy.belowMin[w]
	}
	if w == viaCMA {
		return m.probeOnce(s)
	}
	return nil
}

// probeOnce probes CMA with a peer at the first call.
func (m *module) probeOnce(s *peerMemory) error {
	if !s.isProbed {
		s.isProbed = true
		if err := m.probeCMA(s); err != nil {
			return m.disableMethod(s, viaCMA, err)
		}
	}
	return s.failures[viaCMA]
}

// errPathEnded does not disable a method, because it concerns one message only.
var errPathEnded = errors.New("the peer has ended the path and the send")

// Read implements btl.RMA. A sender ends its path before it fails its sends, whose memory
// belongs to the program again afterwards. The copy is therefore valid only if the path is still
// open after it.
func (m *module) Read(peer framework.Incarnation, r btl.Remote, offset int64, dst []byte) (int, error) {
	n, err := m.read(peer, r, offset, dst)
	if err != nil {
		return 0, err
	}
	if p := m.inboundPaths[peer]; p == nil || !p.isOpen() {
		return 0, errPathEnded
	}
	return n, nil
}

func (m *module) read(peer framework.Incarnation, r btl.Remote, offset int64, dst []byte) (int, error) {
	d, err := decodeDescription(r)
	if err != nil {
		return 0, err
	}
	s, err := m.peerMemoryOf(peer)
	if err != nil {
		return 0, err
	}
	if offset < 0 || uint64(offset) > d.length || uint64(len(dst)) > d.length-uint64(offset) {
		return 0, fmt.Errorf("%d bytes at %d exceed the description of %d bytes", len(dst), offset, d.length)
	}
	dst = dst[:min(len(dst), m.policy.readStep)]
	// The order is that of CanRead, which has checked the size.
	if d.regionNumber != 0 && m.checkUsable(s, viaMapping, m.policy.minSize[viaMapping]) == nil {
		return m.readMemory(s, d, offset, dst)
	}
	if d.address == 0 {
		return 0, errNoReadableMemory
	}
	if err := m.checkUsable(s, viaCMA, m.policy.minSize[viaCMA]); err != nil {
		return 0, err
	}
	n, err := m.readVM(s.pid, dst, d.address+uint64(offset))
	if err != nil {
		return 0, m.disableMethod(s, viaCMA, describeVMError("process_vm_readv", err, s.pid))
	}
	return n, nil
}

// Notes implements btl.RMA.
func (m *module) Notes(peer framework.Incarnation) []string {
	s, noPath := m.peerMemoryOf(peer)
	notes := make([]string, methodCount)
	for w, name := range []string{viaMapping: "one copy from allocated memory", viaCMA: "one copy by process_vm_readv"} {
		why := m.policy.disallowed[w]
		if why == nil {
			why = noPath
		}
		if far := m.remoteInboxOf(peer); why == nil && copyMethod(w) == viaCMA && !s.isProbed && far != nil && far.isClosed() {
			why = errNotProbed
		}
		if why == nil {
			why = m.checkUsable(s, copyMethod(w), m.policy.minSize[w])
		}
		if why == nil {
			notes[w] = fmt.Sprintf("%s: on, from %v", name, framework.Size(m.policy.minSize[w]))
			if copyMethod(w) == viaCMA {
				notes[w] += ", both ways"
				if s.writeFailure != nil {
					notes[w] = fmt.Sprintf("%s: on, from %v, but not process_vm_writev: %v", name, framework.Size(m.policy.minSize[w]), s.writeFailure)
				}
			}
		} else {
			notes[w] = fmt.Sprintf("%s: off: %v", name, why)
		}
	}
	return notes
}
