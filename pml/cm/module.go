package cm

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
	"github.com/ferrympi/ferry/progress"
)

// Module is cm in one process. Everything is guarded by the engine's lock.
type Module struct {
	env    pml.Env
	engine *progress.Engine

	name   string // of the MTL
	mtl    mtl.Module
	looker mtl.Looker      // nil: it has no such call
	keeper mtl.Keeper      // of heads; nil: they are where they were received
	source progress.Source // mtl, converted once
	caps   mtl.Caps
	ids    ids
	cuts   bool  // the MTL has a limit, and longer messages come in parts
	least  int64 // bytes that a receive has room for at least
	longs  longs

	comms        base.Comms[comm]
	handles      map[cid.Extended]int // handles of each communicator that has several ranks per process
	procs        base.Procs[*proc]
	unknownPeers unknownPeers
	earlySenders map[*proc]struct{} // Processes with messages in proc.early, or that have lost some.
	deaths       uint32             // processes that have failed
	inquiries    base.Inquiries
	failures     bool // receives have to look for a reason why nothing can come: a proc's err, or an aborted plane
	kept         int  // messages in unexpected queues
	sends        int  // that are not complete
	closed       bool // Close was called

	requests     []*request // all there are
	free         *request
	quick        *request // that of the next receiveNow, or nil: posted while it has a communicator
	fast         uint     // receiveNow was called so often
	freeMessages *message
	freeControls *controlSend

	probing  []*prober // blocked probes
	reaped   []*comm   // closed here, or a plane is aborted, and somebody may still send to them
	quiet    []*comm   // those of them that are quiet, by age
	reaper   reaping
	pulls    int                         // that are under way
	sweepers []*sweeper                  // of all planes
	postings uint64                      // Receives that were posted.
	left     map[framework.ProcID]uint64 // the last life of each that has left, by the bootstrap's word
	leaving  []*leaver                   // processes that have said goodbye, and of which messages may still come
	doubting doubting
	known    map[*byte]struct{} // memory that the network knows, by its first byte

	// failure is the text for framework.FailureAddress, or empty.
	failure string
}

// Offer implements pml.Module.
func (m *Module) Offer() pml.Offer {
	detail := fmt.Sprintf("mtl %s: %s", m.name, m.mtl.Offer())
	if m.cuts {
		detail += ", in parts" // both look for heads, or neither does
	}
	return pml.Offer{PML: "cm", Version: WireVersion, Priority: component{}.Info().Priority, Detail: detail}
}

// Addresses implements pml.Module.
func (m *Module) Addresses() []framework.Address {
	all := []framework.Address{{Component: framework.ComponentName(framework.MTL, m.name), Blob: m.mtl.Blob()}}
	if m.failure != "" {
		all = append(all, framework.FailureAddress(m.failure))
	}
	return all
}

// failures returns the candidates that an MTL has tried without success, with their reasons.
func failures(d mtl.Description) string {
	var all []string
	for _, c := range d.Candidates {
		if c.Failed {
			all = append(all, c.Name+": "+c.Reason)
		}
	}
	return strings.Join(all, "; ")
}

// CIDs implements pml.Module.
func (m *Module) CIDs() *cid.Table { return m.comms.Table }

// Caps implements pml.Module.
func (m *Module) Caps() pml.Caps {
	caps := pml.Caps{TagMax: 1<<m.caps.TagBits - 1, MaxMessage: math.MaxInt64, Steps: []int{m.caps.Inject}}
	if m.caps.MaxMessage <= mostStep && m.caps.MaxMessage > int64(m.caps.Inject) {
		caps.Steps = append(caps.Steps, int(m.caps.MaxMessage))
	}
	return caps
}

// mostStep is the longest message that counts as a step: tests go by those, and have
// memory for no more.
const mostStep = 1 << 20

// Learn implements pml.Module.
func (m *Module) Learn(peer framework.Life, card framework.Card) error {
	m.engine.Lock()
	defer m.engine.Unlock()
	return m.learn(peer, card)
}

// PeerFailed implements pml.Module.
func (m *Module) PeerFailed(peer framework.Life, reason string) {
	m.engine.Lock()
	defer m.engine.Unlock()
	m.lastPolls()
	m.procs.Died(peer, reason)
	m.inquire()
}

// lastPolls takes what a process had sent before its end: it is there, and arrives.
func (m *Module) lastPolls() {
	for i := 0; i < mostLastPolls && m.mtl.Poll() > 0; i++ {
	}
}

// PeerGone implements pml.Module. One that has left may have sent what the network still
// brings, and says itself how much.
func (m *Module) PeerGone(peer framework.Life, how error) {
	m.engine.Lock()
	defer m.engine.Unlock()
	if !errors.Is(how, framework.ErrPeerClosed) {
		m.lastPolls()
		m.procs.Gone(peer, how)
		m.inquire()
		return
	}
	m.left[peer.ID] = peer.Nonce
	if p := m.procs.Find(peer); p != nil && p.Known {
		p.left()
	} else if m.procs.InUse(peer) {
		m.procs.Member(peer) // It leaves at once.
	}
}

// DropPeer implements pml.PeerDropper. The endpoint in the MTL stays.
func (m *Module) DropPeer(peer framework.Life) bool {
	m.engine.Lock()
	defer m.engine.Unlock()
	if _, ok := m.procs.Remove(peer); !ok {
		return false
	}
	if m.left[peer.ID] == peer.Nonce {
		delete(m.left, peer.ID)
	}
	if e := m.unknownPeers.early[peer.Nonce]; e != nil {
		m.unknownPeers.n -= len(e.kept)
		delete(m.unknownPeers.early, peer.Nonce)
	}
	return true
}

// mostLastPolls bounds the time for what a dead process had sent: others go on
// sending meanwhile.
const mostLastPolls = 1000

// Endpoint implements mtl.Receiver.
func (m *Module) Endpoint(word uint32, source int) (mtl.Endpoint, bool) {
	index := int(m.ids.index(word))
	if index >= len(m.comms.ByIndex) {
		return 0, false
	}
	c := m.comms.ByIndex[index]
	if c == nil || word&^(1<<planeBits-1) != c.word || source < 0 || source >= c.Len() {
		return 0, false
	}
	p := c.Proc(source)
	err := p.connect()
	return p.to, err == nil
}

// Poll implements progress.Source: it has blocked probes ask again, and probes for
// messages to closed communicators.
func (m *Module) Poll() int {
	if len(m.probing) > 0 {
		m.askAgain()
	}
	if len(m.reaped) > 0 {
		m.reap()
	}
	if len(m.sweepers) > 0 {
		m.sweep()
	}
	if len(m.leaving) > 0 {
		m.farewell()
	}
	if m.doubting.any {
		m.resolve()
	}
	return 0
}

// Due implements progress.Timed.
func (m *Module) Due() time.Duration {
	var interval time.Duration
	for _, work := range [...]struct {
		is  bool
		gap time.Duration
	}{
		{len(m.probing) > 0, probeInterval},
		{len(m.reaped) > 0, max(m.reaper.gap, firstReapGap)},
		{len(m.sweepers) > 0, m.sweepGap()},
		{len(m.leaving) > 0, m.farewellGap()},
		{m.doubting.any, base.DoubtStep},
	} {
		if work.is && (interval == 0 || work.gap < interval) {
			interval = work.gap
		}
	}
	return interval
}

// Route implements pml.Module.
func (m *Module) Route(peer framework.Life) pml.Route {
	m.engine.Lock()
	defer m.engine.Unlock()
	route := pml.Route{PML: "cm"}
	p := m.procs.Find(peer)
	if p == nil || !p.Known {
		stateless, card, ok := m.procs.Unlearned(peer)
		if !ok {
			return route
		}
		if p == nil {
			p = stateless
		}
		p.card = card
	}
	far, err := p.peer()
	if err == nil && !p.connected {
		err = m.mtl.Reach(far)
	}
	if err != nil {
		route.Rejected = append(route.Rejected, framework.Rejection{Name: m.name, Reason: err.Error()})
		return route
	}
	d := m.mtl.Describe()
	route.Used = p.connected
	route.Transport, route.Device, route.Provider = m.name, cmp.Or(d.Device, d.Provider, d.Mode), d.Provider
	if d.Mode != "" {
		route.Notes = append(route.Notes, "tags: "+d.Mode)
	}
	if m.cuts {
		route.Notes = append(route.Notes, fmt.Sprintf("messages above %d bytes travel in parts", m.caps.MaxMessage))
	}
	route.Notes = append(route.Notes, d.Notes...)
	return route
}

// Stats implements pml.Module.
func (m *Module) Stats() []pml.PeerStats {
	m.engine.Lock()
	defer m.engine.Unlock()
	return m.procs.Stats()
}

// Close implements pml.Module. What is pending ends with an error; what the MTL still
// has ends with it, which the assembly closes next.
func (m *Module) Close() error {
	m.engine.Remove(m)
	if f, ok := framework.As[mtl.Finisher](m.mtl); ok {
		f.Finish() // what has matched is written into the user's buffers until then
	}
	m.engine.Lock()
	defer m.engine.Unlock()
	m.closed = true
	err := fmt.Errorf("%w: the last session was closed meanwhile", framework.ErrClosed)
	for _, r := range m.requests {
		if r.c != nil && r.state != complete {
			r.fail(err)
		}
	}
	return nil
}
