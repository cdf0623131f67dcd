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

// module is this process's inbox and its paths. All state is guarded by the
// engine's lock.
type module struct {
	env        btl.Env
	space      segment.Space
	dir        string
	fallback   string // where segments are that found no room in dir
	ring       int    // bytes of a ring by the number of processes when the module opened; frame limits are fixed then
	frameLimit int
	eagerLimit int

	near     *area // the inbox's file
	overflow *area // the file in the fallback directory; nil until near has no room
	mapping  *segment.Mapping
	box      shmlayout.Inbox
	requests uint32 // of the inbox, as handled

	releaseBell func() // takes the engine's bell back out of the inbox

	paths   []*inbound // that are polled
	turn    int        // in paths; see pollSome
	last    *inbound   // of paths, from which something came; may be nil
	in      map[framework.Life]*inbound
	broken  map[int]ringMemory // Memory of failed paths, by slot, until their senders can't write there.
	out     map[framework.Life]*endpoint
	waiting []*endpoint // for a ring, or for cells
	spare   []*endpoint // memory for the next such list

	// One copy for large messages: what peers read here, and what is read there.
	table   table // See exposed.go.
	memory  memory
	copy    copyPolicy
	readVM  readVM
	writeVM writeVM
	shares  uint32 // number of the latest
	sources map[framework.Life]*source
	asked   *source // the one asked for last, while there is a path
	mapped  map[mappedKey]*mapped
	clock   uint64 // counts uses of mapped
	bells   map[framework.Life]*farBell
}

func (m *module) Caps() btl.Caps {
	return btl.Caps{
		EagerLimit:  m.eagerLimit,
		FrameLimit:  m.frameLimit,
		LatencyNS:   70,
		Exclusivity: 1 << 15,
		Device:      filepath.Dir(m.near.segment.Path()),
		Ring:        m.ring,
		ReadFrom:    m.copy.readFrom(),
	}
}

// Blob is the file name of the inbox. Whoever can open it in his directory and
// finds our nonce there is on this node.
func (m *module) Blob() []byte { return []byte(m.name()) }

// name is the file name of the inbox.
func (m *module) name() string { return filepath.Base(m.near.segment.Path()) }

// path returns where a segment of that name lies.
func (m *module) path(name string) string {
	if strings.HasPrefix(name, fallbackName) {
		return filepath.Join(m.fallback, name)
	}
	return filepath.Join(m.dir, name)
}

// Poll costs a load for the inbox and one per ring when nothing happens.
func (m *module) Poll() int {
	n := 0
	if r := m.box.Requests(); r != m.requests {
		m.requests = r
		n += m.serve()
	}
	if len(m.waiting) > 0 {
		n += m.checkWaiting()
	}
	if len(m.paths) > fewPaths && !m.env.Bell().Armed() {
		return n + m.pollSome()
	}
	for _, p := range m.paths {
		n += p.Poll()
	}
	return n
}

// Lag implements progress.Lagging: who publishes a frame looks at the bell at once, without a
// barrier, which would have it wait until it owns the frame's line.
func (m *module) Lag() time.Duration {
	if len(m.paths) == 0 {
		return 0
	}
	return progress.StoreLag
}

// Of many paths one Poll looks at the one from which something came last, and at
// some of the others in turn: with 64 peers, most of them silent, whoever speaks is
// heard almost as soon as with one. Before the process sleeps all are looked at.
const (
	fewPaths  = 12
	somePaths = 8
)

func (m *module) pollSome() (n int) {
	if m.last != nil {
		n = m.last.Poll()
	}
	for range somePaths {
		if m.turn++; m.turn >= len(m.paths) {
			m.turn = 0
		}
		p := m.paths[m.turn]
		if k := p.Poll(); k > 0 {
			n += k
			m.last = p
		}
		if len(m.paths) == 0 { // what came has ended the last one
			break
		}
	}
	return n
}

// PeerSource is the ring from one peer.
func (m *module) PeerSource(peer framework.Life) progress.Source {
	if p := m.in[peer]; p != nil {
		return (*single)(p)
	}
	return nil
}

// serve answers what senders want: a ring, or to be forgotten.
func (m *module) serve() (n int) {
	for i := range m.box.Slots() {
		slot := m.box.Slot(i)
		switch slot.State() {
		case shmlayout.Requested:
			if err := m.grant(i); err != nil {
				m.env.Logger.Info("btl shm: refused a connection", "error", err)
				slot.Refuse(m.refusal(err))
			}
			n++
		case shmlayout.Left:
			m.forget(i)
			n++
		}
	}
	return n
}

// grant makes a ring for the sender in slot i.
func (m *module) grant(i int) error {
	m.giveBackBroken(i)
	slot := m.box.Slot(i)
	from, err := slot.Sender()
	if err != nil {
		return err
	}
	world, ok := m.env.Worlds.ByHash(from.World)
	if !ok {
		return fmt.Errorf("rank %d of an unknown namespace", from.Rank)
	}
	peer := framework.Life{ID: framework.MakeProcID(world, from.Rank), Nonce: from.Nonce}
	for life, old := range m.in {
		if life.ID == peer.ID {
			// The process was killed and came back: nobody writes to its old ring.
			m.forget(old.index)
		}
	}
	// Its bell, for when it waits for cells.
	far, err := m.attach(from.Name, from.Nonce)
	if err != nil {
		return err
	}
	found, err := m.ringMemory()
	if err != nil {
		far.Close()
		return err
	}
	cells := found.cells
	p := &inbound{
		m: m, peer: peer, index: i, far: far, bell: progress.BellAt(far.box.Bell()),
		memory: found, cells: cells,
		consumer: ring.NewConsumer(slot.Ring(), cells.Bytes),
	}
	clear(slot.Ring())
	m.in[peer] = p
	m.paths = append(m.paths, p)
	p.up = m.env.Upcall.Accept(peer)
	if !slot.Grant(found.offset, len(cells.Bytes)/ring.CellSize, found.how) {
		m.forget(i)
		return nil
	}
	p.ring()
	return nil
}

// Forget implements btl.Forgetter. The dead peer may have had a ring, a request that has not been
// served, or a refusal that it has not seen.
func (m *module) Forget(peer framework.Life) {
	if p := m.in[peer]; p != nil {
		m.forget(p.index)
	}
	for i := range m.box.Slots() {
		slot := m.box.Slot(i)
		isUsed := slot.State() >= shmlayout.Requested // before Nonce
		if isUsed && slot.Nonce() == peer.Nonce {
			m.forget(i)
		}
	}
	if e := m.out[peer]; e != nil {
		e.Close()
	}
	delete(m.sources, peer)
}

// refusal puts an error into what a slot has room for. The log of this process has the
// directories, which may be long.
func (m *module) refusal(err error) string {
	var space *segment.SpaceError
	if errors.As(err, &space) {
		return space.Shortage() + " or set btl.shm.dir"
	}
	why := err.Error()
	for _, dir := range []string{m.dir, m.fallback} {
		if dir != "" {
			why = strings.ReplaceAll(why, dir+"/", "")
		}
	}
	return why
}

// forget drains and frees the ring of a sender that has left or died, and frees slot i.
func (m *module) forget(i int) {
	for _, p := range m.paths {
		if p.index == i {
			p.bell = progress.BellAt(m.box.Bell()) // The sender does not wait for cells.
			for p.Poll() > 0 {
			}
			if p.consumer != nil { // Otherwise its last frames have failed.
				m.drop(p)
				p.memory.giveBack()
			}
			break
		}
	}
	m.giveBackBroken(i)
	m.box.Slot(i).SetState(shmlayout.Free)
}

// giveBackBroken makes the ring of slot i free that fail has left to its sender. The sender has
// freed the slot since then, or is dead.
func (m *module) giveBackBroken(i int) {
	if r, ok := m.broken[i]; ok {
		delete(m.broken, i)
		r.giveBack()
	}
}

// drop ends a path from a peer. The caller decides when slot and ring memory are used again, since
// the peer may be alive, and write there.
func (m *module) drop(p *inbound) {
	for i, q := range m.paths {
		if p == q {
			// A new slice: Poll may be walking the old one.
			m.paths = append(m.paths[:i:i], m.paths[i+1:]...)
			break
		}
	}
	if m.last == p {
		m.last = nil
	}
	if m.in[p.peer] == p {
		delete(m.in, p.peer)
	}
	p.consumer = nil
	p.cells.Close()
	p.far.Close()
	m.unmapPeer(p.peer)
}

// connectTick is how often a sender that sleeps looks whether its request was
// answered. A grant rings; an owner that refuses may be one that can't open our
// inbox, and so can't ring.
const connectTick = 10 * time.Millisecond

// Due implements progress.Timed.
func (m *module) Due() time.Duration {
	if slices.ContainsFunc(m.waiting, func(e *endpoint) bool { return e.producer == nil }) {
		return connectTick
	}
	return 0
}

// checkWaiting looks after the endpoints that wait for their peer.
func (m *module) checkWaiting() (n int) {
	waiting := m.waiting
	m.waiting, m.spare = m.spare[:0], nil
	for _, e := range waiting {
		e.listed = false
		if e.far != nil && e.check() { // else closed meanwhile
			n++
		}
	}
	m.spare = waiting
	return n
}

// Close ends all paths. What senders commit from now on is never read.
func (m *module) Close() error {
	for _, e := range m.out {
		e.Close()
	}
	m.box.Close()
	for len(m.paths) > 0 {
		m.paths[0].ring() // it may sleep until there are cells
		m.drop(m.paths[0])
	}
	for i := range m.box.Slots() {
		m.box.Slot(i).Refuse("its session was closed")
	}
	for key := range m.mapped {
		m.unmap(key)
	}
	m.releaseBell()
	err := errors.Join(m.memory.freeAll(), m.mapping.Close(), m.near.segment.Close())
	if m.overflow != nil {
		err = errors.Join(err, m.overflow.segment.Close())
	}
	return err
}
