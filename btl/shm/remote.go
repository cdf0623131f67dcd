package shm

import (
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/shmlayout"
)

// The ways in which a receiver copies a message out of the sender's memory.
type way uint8

const (
	wayMemory way = iota // the sender's memory is a region, mapped here
	wayCMA               // the kernel copies
	ways
)

// copyPolicy is what the parameters say of reading peers' memory, and the reasons
// that they give: made once, because they are asked for with each message.
type copyPolicy struct {
	step   int         // bytes per Read
	min    [ways]int64 // messages from this size on
	not    [ways]error // why not, whatever the size; nil: allowed
	less   [ways]error // why not, for smaller messages
	only   way         // that single_copy allows
	forced error       // says so; nil: it does not
}

// newCopyPolicy decides what this process may read. Which of that is used, the protocol
// learns.
func newCopyPolicy(p *params) copyPolicy {
	c := copyPolicy{
		step: int(p.CopyStep),
		min:  [ways]int64{wayMemory: int64(p.MemoryMin), wayCMA: int64(p.CMAMin)},
		less: [ways]error{
			wayMemory: fmt.Errorf("messages below btl.shm.memory_min=%v go as frames", p.MemoryMin),
			wayCMA:    fmt.Errorf("messages below btl.shm.cma_min=%v go as frames", p.CMAMin),
		},
	}
	refused := fmt.Errorf("btl.shm.single_copy=%s", p.SingleCopy)
	forced := fmt.Errorf("%w allows no other way", refused)
	switch p.SingleCopy {
	case "off":
		c.not = [ways]error{refused, refused}
	case "cma":
		c.only, c.forced = wayCMA, forced
		c.not[wayMemory] = refused
	case "memory":
		c.only, c.forced = wayMemory, forced
		c.not[wayCMA] = refused
	}
	return c
}

// allows says whether memory is described for a way. Reader and owner have the
// same parameters; where they differ, the reader finds nothing or refuses.
func (c *copyPolicy) allows(w way) bool { return c.not[w] == nil }

// readFrom is btl.Caps.ReadFrom.
func (c *copyPolicy) readFrom() int {
	if !c.allows(wayMemory) {
		return 0
	}
	return max(int(c.min[wayMemory]), 1)
}

// source is what this process knows of reading one peer's memory.
type source struct {
	peer    framework.Life
	name    string      // of the peer's inbox
	probed  bool        // CMA was tried
	failed  [ways]error // why a way is off for this peer, and stays so
	noWrite error       // why this process does not write there, and stays so

	// See exposed.go.
	pid           int    // Process id of the peer that the kernel vouches for, 0 until identify succeeds.
	table         uint64 // Address of the table in that process.
	notIdentified error
	shared        [shmlayout.Shares]btl.Remote // Shares that have been compared with the table.
}

// far returns the peer's inbox while there is a path from or to it.
func (m *module) far(peer framework.Life) *remote {
	if p := m.in[peer]; p != nil {
		return p.far
	}
	if e := m.out[peer]; e != nil {
		return e.far
	}
	return nil
}

var (
	errNoPath   = errors.New("there is no path to the peer")
	errNotTried = errors.New("not tried: the peer left before a message was large enough")
)

// source returns what is known of a peer. It is asked several times for each message.
func (m *module) source(peer framework.Life) (*source, error) {
	if m.asked != nil && m.asked.peer == peer {
		return m.asked, nil
	}
	far := m.far(peer)
	if far == nil {
		return nil, errNoPath
	}
	s := m.sources[peer]
	if s == nil {
		s = &source{peer: peer, name: far.name}
		m.sources[peer] = s
	}
	m.asked = s
	return s, nil
}

// off remembers why a way does not work with a peer.
func (m *module) off(s *source, w way, err error) error {
	s.failed[w] = m.failure(s, "read memory", err)
	return s.failed[w]
}

func (m *module) failure(s *source, op string, err error) error {
	err = &framework.TransportError{Component: "btl shm", Peer: m.env.Worlds.Proc(s.peer.ID).String(), Op: op, Err: err}
	m.env.Logger.Info("btl shm: a way to copy large messages is off for one peer", "error", err)
	return err
}

// CanRead implements btl.RemoteReader.
func (m *module) CanRead(peer framework.Life, r btl.Remote, size int64) error {
	d, err := decode(r)
	if err != nil {
		return err
	}
	s, err := m.source(peer)
	if err != nil {
		return err
	}
	if size < 0 || uint64(size) > d.length {
		return fmt.Errorf("the peer describes %d bytes, but %d are to be read", d.length, size)
	}
	if d.number != 0 {
		if err = m.usable(s, wayMemory, size); err == nil {
			_, err = m.region(s, d)
		}
		if err == nil {
			return nil
		}
	}
	if d.address != 0 {
		if failed := m.usable(s, wayCMA, size); failed == nil || err == nil {
			err = failed
		}
	}
	return err
}

// usable says why a way is not used for messages of that size from a peer.
func (m *module) usable(s *source, w way, size int64) error {
	if err := m.copy.not[w]; err != nil {
		return err
	}
	if err := s.failed[w]; err != nil {
		return err
	}
	if size < m.copy.min[w] {
		return m.copy.less[w]
	}
	if w == wayCMA {
		return m.probed(s)
	}
	return nil
}

// probed tries CMA with a peer, once.
func (m *module) probed(s *source) error {
	if !s.probed {
		s.probed = true
		if err := m.probeCMA(s); err != nil {
			return m.off(s, wayCMA, err)
		}
	}
	return s.failed[wayCMA]
}

// errEnded is no reason against a way: the message itself is over.
var errEnded = errors.New("the peer has ended the path, and with it the send whose memory this was")

// Read implements btl.RemoteReader. A sender ends its path before its sends end with an error,
// and then the memory is the program's again: so who finds the path as it was after the copy has the
// message, and not what the program wrote there since.
func (m *module) Read(peer framework.Life, r btl.Remote, offset int64, dst []byte) (int, error) {
	n, err := m.read(peer, r, offset, dst)
	if err != nil {
		return 0, err
	}
	if p := m.in[peer]; p == nil || !p.stands() {
		return 0, errEnded
	}
	return n, nil
}

func (m *module) read(peer framework.Life, r btl.Remote, offset int64, dst []byte) (int, error) {
	d, err := decode(r)
	if err != nil {
		return 0, err
	}
	s, err := m.source(peer)
	if err != nil {
		return 0, err
	}
	if offset < 0 || uint64(offset) > d.length || uint64(len(dst)) > d.length-uint64(offset) {
		return 0, fmt.Errorf("%d bytes at %d are not among the %d that the peer describes", len(dst), offset, d.length)
	}
	dst = dst[:min(len(dst), m.copy.step)]
	// The same order as in CanRead, which has decided about the size.
	if d.number != 0 && m.usable(s, wayMemory, m.copy.min[wayMemory]) == nil {
		return m.readMemory(s, d, offset, dst)
	}
	if d.address == 0 {
		return 0, errNothing
	}
	if err := m.usable(s, wayCMA, m.copy.min[wayCMA]); err != nil {
		return 0, err
	}
	n, err := m.readVM(s.pid, dst, d.address+uint64(offset))
	if err != nil {
		return 0, m.off(s, wayCMA, vmError("process_vm_readv", err, s.pid))
	}
	return n, nil
}

// Notes implements btl.RemoteReader.
func (m *module) Notes(peer framework.Life) []string {
	s, noPath := m.source(peer)
	notes := make([]string, ways)
	for w, name := range []string{wayMemory: "one copy from allocated memory", wayCMA: "one copy by process_vm_readv"} {
		why := m.copy.not[w]
		if why == nil {
			why = noPath
		}
		if far := m.far(peer); why == nil && way(w) == wayCMA && !s.probed && far != nil && far.closed() {
			why = errNotTried
		}
		if why == nil {
			why = m.usable(s, way(w), m.copy.min[w])
		}
		if why == nil {
			notes[w] = fmt.Sprintf("%s: on, from %v", name, framework.Size(m.copy.min[w]))
			if way(w) == wayCMA {
				notes[w] += ", both ways"
				if s.noWrite != nil {
					notes[w] = fmt.Sprintf("%s: on, from %v, but not process_vm_writev: %v", name, framework.Size(m.copy.min[w]), s.noWrite)
				}
			}
		} else {
			notes[w] = fmt.Sprintf("%s: off: %v", name, why)
		}
	}
	return notes
}
