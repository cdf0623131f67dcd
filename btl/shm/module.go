package shm

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/segment"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/ring"
	"github.com/ferrympi/ferry/internal/shmlayout"
	"github.com/ferrympi/ferry/progress"
)

// module is the inbox of this process with its paths. The engine's lock guards its state.
type module struct {
	env   btl.Env
	space segment.Space
	dir   string
	// Directory of segments that found no space in dir.
	fallbackDir string
	// Ring size for the number of processes when the module opened. The frame limits follow it and
	// do not change.
	initialRingBytes int
	frameLimit       int
	eagerLimit       int

	// File of the inbox.
	inboxFile *ringFile
	// File in the fallback directory, nil until inboxFile has no space.
	overflowFile *ringFile
	mapping      *segment.Mapping
	inbox        shmlayout.Inbox
	// Value of the inbox's request counter that was served last.
	servedRequests uint32

	// Returns the engine's bell from the inbox to private memory.
	releaseBell func()

	inboundPathSet
	endpointSet
	singleCopies
	peerBells map[framework.Incarnation]*sharedBell
}

// inboundPathSet has the paths from peers.
type inboundPathSet struct {
	polledPaths []*inbound
	// Index in polledPaths where pollSome continues.
	pollCursor int
	// Path that delivered a frame last, nil if it has ended.
	lastActive   *inbound
	inboundPaths map[framework.Incarnation]*inbound
	// Rings of failed paths, by slot, until their senders cannot write there any more.
	failedRings map[int]ringMemory
}

// endpointSet has the paths to peers.
type endpointSet struct {
	endpoints map[framework.Incarnation]*endpoint
	// Endpoints that wait for a ring or for cells.
	waitingEndpoints []*endpoint
	// Memory for the next waiting list.
	spareWaiting []*endpoint
}

// singleCopies is the state of single copies of large messages, and of the memory that peers read.
type singleCopies struct {
	shareTable table
	regions    regionSet
	policy     copyPolicy
	readVM     readFunc
	writeVM    writeFunc
	// Generation of the latest share.
	lastShare    uint32
	peerMemories map[framework.Incarnation]*peerMemory
	// Result of the latest peerMemoryOf, nil once the last path to the peer has ended.
	lastPeerMemory *peerMemory
	mappedRegions  map[regionKey]*mappedRegion
	// Logical clock for the eviction of mappedRegions.
	useClock uint64
	// Nil before the first call of NodeTable, and after a failure.
	nodeTable      *nodeTable
	hasOpenedTable bool
	// cpu.CacheDomain but for tests.
	cacheDomain func(pid int) (lowest int, ok bool)
}

func (m *module) Caps() btl.Caps {
	return btl.Caps{
		EagerLimit:  m.eagerLimit,
		FrameLimit:  m.frameLimit,
		LatencyNS:   70,
		Exclusivity: 1 << 15,
		Device:      filepath.Dir(m.inboxFile.segment.Path()),
		Ring:        m.initialRingBytes,
		ReadFrom:    m.policy.readFrom(),
	}
}

// Blob returns the file name of the inbox. A process that finds a file of that name with this
// process's nonce in its directory is on the same node.
func (m *module) Blob() []byte { return []byte(m.name()) }

// name returns the file name of the inbox.
func (m *module) name() string { return filepath.Base(m.inboxFile.segment.Path()) }

// path returns the path of the segment called name.
func (m *module) path(name string) string {
	if strings.HasPrefix(name, fallbackName) {
		return filepath.Join(m.fallbackDir, name)
	}
	return filepath.Join(m.dir, name)
}

// Poll loads the inbox's request counter and one word per ring if no frame has arrived.
func (m *module) Poll() int {
	n := 0
	if r := m.inbox.Requests(); r != m.servedRequests {
		m.servedRequests = r
		n += m.serveRequests()
	}
	if len(m.waitingEndpoints) > 0 {
		n += m.checkWaiting()
	}
	if len(m.polledPaths) > fewPaths && !m.env.Bell().Armed() {
		return n + m.pollSome()
	}
	for _, p := range m.polledPaths {
		n += p.Poll()
	}
	return n
}

// Lag implements progress.Lagging. A sender loads the bell right after the store of a frame,
// without a barrier that would wait for ownership of the frame's cache line.
func (s *inboundPathSet) Lag() time.Duration {
	if len(s.polledPaths) == 0 {
		return 0
	}
	return progress.StoreLag
}

// With more than fewPaths paths, a Poll covers the path that delivered a frame last and the next
// somePaths others. The latency with 64 mostly silent peers is then about that with one. A Poll
// before sleep covers all paths.
const (
	fewPaths  = 12
	somePaths = 8
)

func (s *inboundPathSet) pollSome() (n int) {
	if s.lastActive != nil {
		n = s.lastActive.Poll()
	}
	for range somePaths {
		if s.pollCursor++; s.pollCursor >= len(s.polledPaths) {
			s.pollCursor = 0
		}
		p := s.polledPaths[s.pollCursor]
		if k := p.Poll(); k > 0 {
			n += k
			s.lastActive = p
		}
		if len(s.polledPaths) == 0 { // A handler has ended the last path.
			break
		}
	}
	return n
}

// PeerSource returns the ring from one peer.
func (m *module) PeerSource(peer framework.Incarnation) progress.Source {
	if p := m.inboundPaths[peer]; p != nil {
		return (*singleFrame)(p)
	}
	return nil
}

// serveRequests grants or refuses requested rings and frees the slots of senders that have left.
func (m *module) serveRequests() (n int) {
	for i := range m.inbox.Slots() {
		slot := m.inbox.Slot(i)
		switch slot.State() {
		case shmlayout.Requested:
			if err := m.grantRing(i); err != nil {
				m.env.Logger.Info("btl shm: refused a connection", "error", err)
				slot.Refuse(m.refusalText(err))
			}
			n++
		case shmlayout.Left:
			m.freeSlot(i)
			n++
		}
	}
	return n
}

// grantRing creates a ring for the sender in slot i.
func (m *module) grantRing(i int) error {
	m.releaseFailedRing(i)
	slot := m.inbox.Slot(i)
	from, err := slot.Sender()
	if err != nil {
		return err
	}
	world, ok := m.env.Worlds.ByHash(from.World)
	if !ok {
		return fmt.Errorf("sender with rank %d has an unknown namespace", from.Rank)
	}
	peer := framework.Incarnation{ID: framework.MakeProcID(world, from.Rank), Nonce: from.Nonce}
	for incarnation, old := range m.inboundPaths {
		if incarnation.ID == peer.ID {
			// The process was killed and restarted. The old ring has no writer any more.
			m.freeSlot(old.slotIndex)
		}
	}
	// Mapped for the sender's bell, which wakes it when cells return.
	far, err := m.attachInbox(from.Name, from.Nonce)
	if err != nil {
		return err
	}
	found, err := m.allocateRing()
	if err != nil {
		far.Close()
		return err
	}
	cells := found.cells
	p := &inbound{
		module: m, peer: peer, slotIndex: i, remote: far, bell: progress.BellAt(far.inbox.Bell()),
		ring: found, cells: cells,
		consumer: ring.NewConsumer(slot.Ring(), cells.Bytes),
	}
	clear(slot.Ring())
	m.inboundPaths[peer] = p
	m.polledPaths = append(m.polledPaths, p)
	p.receiver = m.env.Upcall.Accept(peer)
	if !slot.Grant(found.offset, len(cells.Bytes)/ring.CellSize, found.flags) {
		m.freeSlot(i)
		return nil
	}
	p.ringSender()
	return nil
}

// Forget implements btl.Forgetter. The dead peer may have left a ring, an unserved request or an
// unread refusal.
func (m *module) Forget(peer framework.Incarnation) {
	if p := m.inboundPaths[peer]; p != nil {
		m.freeSlot(p.slotIndex)
	}
	for i := range m.inbox.Slots() {
		slot := m.inbox.Slot(i)
		isUsed := slot.State() >= shmlayout.Requested // Checked before the nonce, which is valid only then.
		if isUsed && slot.Nonce() == peer.Nonce {
			m.freeSlot(i)
		}
	}
	if e := m.endpoints[peer]; e != nil {
		e.Close()
	}
	delete(m.peerMemories, peer)
}

// refusalText shortens err to the size of a slot. It removes the directories, which the log of this
// process has in full.
func (m *module) refusalText(err error) string {
	var space *segment.SpaceError
	if errors.As(err, &space) {
		return space.Shortage() + " or set btl.shm.dir"
	}
	why := err.Error()
	for _, dir := range []string{m.dir, m.fallbackDir} {
		if dir != "" {
			why = strings.ReplaceAll(why, dir+"/", "")
		}
	}
	return why
}

// freeSlot drains and frees the ring of a sender that has left or died, and frees slot i.
func (m *module) freeSlot(i int) {
	for _, p := range m.polledPaths {
		if p.slotIndex == i {
			p.bell = progress.BellAt(m.inbox.Bell()) // The sender does not wait for cells.
			for p.Poll() > 0 {
			}
			if p.consumer != nil { // A malformed frame has ended the path otherwise.
				m.dropPath(p)
				p.ring.release()
			}
			break
		}
	}
	m.releaseFailedRing(i)
	m.inbox.Slot(i).SetState(shmlayout.Free)
}

// releaseFailedRing frees the memory of the ring of slot i after failPath. The sender has freed the
// slot since then, or is dead.
func (s *inboundPathSet) releaseFailedRing(i int) {
	if r, ok := s.failedRings[i]; ok {
		delete(s.failedRings, i)
		r.release()
	}
}

// dropPath ends a path from a peer. The caller frees the slot and the memory of the ring as soon as
// the peer cannot write there any more.
func (m *module) dropPath(p *inbound) {
	for i, q := range m.polledPaths {
		if p == q {
			// A new slice, because Poll may be iterating over the old one.
			m.polledPaths = append(m.polledPaths[:i:i], m.polledPaths[i+1:]...)
			break
		}
	}
	if m.lastActive == p {
		m.lastActive = nil
	}
	if m.inboundPaths[p.peer] == p {
		delete(m.inboundPaths, p.peer)
	}
	p.consumer = nil
	p.cells.Close()
	p.remote.Close()
	m.unmapPeerRegions(p.peer)
}

// connectTick is the poll interval of a sleeping sender with a pending request. A grant rings the
// bell, but an owner that cannot open this process's inbox refuses without ringing.
const connectTick = 10 * time.Millisecond

// Due implements progress.Timed.
func (s *endpointSet) Due() time.Duration {
	if slices.ContainsFunc(s.waitingEndpoints, func(e *endpoint) bool { return e.producer == nil }) {
		return connectTick
	}
	return 0
}

// checkWaiting checks the endpoints that wait for their peer.
func (s *endpointSet) checkWaiting() (n int) {
	waiting := s.waitingEndpoints
	s.waitingEndpoints, s.spareWaiting = s.spareWaiting[:0], nil
	for _, e := range waiting {
		e.isWaiting = false
		if e.remote != nil && e.checkState() { // A closed endpoint has no remote inbox.
			n++
		}
	}
	s.spareWaiting = waiting
	return n
}

// Close ends all paths. Frames that senders commit later are lost.
func (m *module) Close() error {
	for _, e := range m.endpoints {
		e.Close()
	}
	m.inbox.Close()
	for len(m.polledPaths) > 0 {
		m.polledPaths[0].ringSender() // The sender may sleep until cells return.
		m.dropPath(m.polledPaths[0])
	}
	for i := range m.inbox.Slots() {
		m.inbox.Slot(i).Refuse("its session was closed")
	}
	for key := range m.mappedRegions {
		m.unmapRegion(key)
	}
	m.releaseBell()
	err := errors.Join(m.regions.freeAll(), m.nodeTable.close(), m.mapping.Close(), m.inboxFile.segment.Close())
	if m.overflowFile != nil {
		err = errors.Join(err, m.overflowFile.segment.Close())
	}
	return err
}
