package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/ring"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/internal/doorbell"
	"github.com/ferrympi/ferry/plugin/internal/wire"
	"github.com/ferrympi/ferry/progress"
)

// module is the transport in the rank. The engine's lock guards it. Nothing of a plugin is
// waited for: what it has to say comes with Poll.
type module struct {
	env       btl.Env
	component component
	params    *params
	name      string
	caps      wire.Offer // of the plugin that was started first
	wake      int        // eventfd, which each plugin writes to
	life      life
	keeper    keeper
	blob      atomic.Pointer[[]byte] // nil while no plugin runs

	// Of the plugin that runs, or ran last.
	process  *process
	producer *ring.Producer
	consumer *ring.Consumer
	plugin   progress.RemoteBell
	sleeps   doorbell.Bell        // says that this process does
	out      map[uint32]*outbound // by number, which is even
	in       map[uint32]*inbound  // odd
	numbers  uint32               // the last one in out
	latest   uint32               // the last one in in
	opening  []*outbound          // that the plugin has not opened yet, the oldest first
	queue    [][]byte             // messages for which the ring had no room
	took     uint64               // messages of the plugin
	slept    bool                 // since wake was read: the plugin may have written to it
	dead     error                // how the plugin ended, once the protocol knows
}

// attach makes the ends of the rings of a plugin that has just been started.
func (m *module) attach(p *process) {
	toPlugin, toRank := wire.Rings(p.mem, p.cells)
	m.process = p
	m.producer, _ = ring.NewProducer(toPlugin[0], toPlugin[1]) // the memory is ours, and of the right size
	m.consumer, _ = ring.NewConsumer(toRank[0], toRank[1])
	m.plugin = progress.BellAt(p.mem[wire.PluginBell : wire.PluginBell+doorbell.Size])
	m.sleeps = doorbell.At(p.mem[wire.RankBell : wire.RankBell+doorbell.Size])
	m.out, m.in = map[uint32]*outbound{}, map[uint32]*inbound{}
	m.numbers, m.latest, m.took, m.dead = 0, 0, 0, nil
	m.opening, m.queue = nil, nil
	m.blob.Store(&p.offer.Blob)
}

// Caps are those of the first plugin: one that is started again can do as much.
func (m *module) Caps() btl.Caps {
	o := m.caps
	return btl.Caps{EagerLimit: int(o.Eager), FrameLimit: int(o.Frame), Exclusivity: int(o.Exclusivity), LatencyNS: float64(o.Latency), Device: o.Device}
}

// Blob is the present plugin's, and nil while there is none.
func (m *module) Blob() []byte {
	if b := m.blob.Load(); b != nil {
		return *b
	}
	return nil
}

// Describe implements btl.Describer: a plugin that was started again may use another device.
func (m *module) Describe(framework.Peer) btl.Description {
	return btl.Description{Device: m.process.offer.Device}
}

// Reach says only whether the plugin is for such peers: whether it gets there turns out when
// a path is opened.
func (m *module) Reach(peer framework.Peer) error {
	kind := uint32(2)
	if peer.Proc == m.env.Identity.Proc {
		kind = 1
	}
	switch {
	case m.dead != nil:
		return m.life.down()
	case m.caps.Reaches&kind == 0:
		return btl.NotMeant(m.name + " is not for such peers")
	case len(peer.Blob) > wire.ControlLimit/2 || len(peer.Blob)+1024 > int(m.caps.Frame) && len(peer.Blob) > 1024:
		return fmt.Errorf("%v tells an address of %d bytes", peer.Proc, len(peer.Blob))
	}
	return nil
}

// Connect asks the plugin.
func (m *module) Connect(peer framework.Peer) (btl.Endpoint, error) {
	if err := m.Reach(peer); err != nil {
		return nil, err
	}
	m.numbers += 2
	e := &outbound{m: m, id: m.numbers, peer: peer.Life, late: time.Now().Add(m.params.Opening)}
	m.out[e.id] = e
	m.opening = append(m.opening, e)
	target := wire.Target{Caller: wire.CallerOf(peer.Life, m.env.Worlds), Namespace: peer.Proc.Namespace, Greeting: m.env.Greet(peer.Life), Blob: peer.Blob}
	m.tell(wire.Connect, e.id, target.Bytes())
	return e, nil
}

// tell sends a message, in the order of the calls.
func (m *module) tell(kind, path uint32, body []byte) {
	if m.dead != nil {
		return
	}
	if len(m.queue) == 0 {
		if b := m.producer.Reserve(wire.Prefix + len(body)); b != nil {
			wire.Put(b, kind, path)
			m.producer.Commit(wire.Prefix + copy(b[wire.Prefix:], body))
			m.plugin.Ring()
			return
		}
	}
	b := make([]byte, wire.Prefix, wire.Prefix+len(body))
	wire.Put(b, kind, path)
	m.queue = append(m.queue, append(b, body...))
	m.producer.Wait(len(m.queue[0]))
	m.env.Engine.Nudge()
}

// send is tell of a frame in two parts.
func (m *module) send(path uint32, head, tail []byte) {
	n := wire.Prefix + len(head) + len(tail)
	var b []byte
	if m.dead == nil && len(m.queue) == 0 { // of a dead one nothing is mapped
		b = wire.Reserve(m.producer, n)
	}
	if b == nil {
		m.tell(wire.Frame, path, slices.Concat(head, tail))
		return
	}
	wire.Put(b, wire.Frame, path)
	copy(b[wire.Prefix:], head)
	cpu.CopyShared(b[wire.Prefix+len(head):], tail)
	m.producer.Commit(n)
	m.plugin.Ring()
}

// flush sends what had no room. How often it looks is bounded, whatever the plugin writes into
// the ring's header meanwhile.
func (m *module) flush() (n int) {
	for range messagesPerPoll {
		if len(m.queue) == 0 {
			break
		}
		b := wire.Reserve(m.producer, len(m.queue[0]))
		if b == nil {
			if !m.producer.Wait(len(m.queue[0])) {
				n++ // there is room now
				continue
			}
			break
		}
		m.producer.Commit(copy(b, m.queue[0]))
		m.queue = m.queue[1:]
		m.plugin.Ring()
		n++
	}
	return n
}

// FD and Arm say how the module is awaited. The plugin looks at the word, and writes to the
// descriptor only if this process sleeps.
func (m *module) FD() int { return m.wake }

func (m *module) Arm() bool {
	if m.dead != nil { // nothing is mapped
		return true
	}
	m.sleeps.Arm()
	m.slept = true
	if m.consumer.Ready() || m.process.ended() != nil {
		m.sleeps.Disarm()
		return false
	}
	return true
}

// Due implements progress.Timed: a path has to open in time.
func (m *module) Due() time.Duration {
	if len(m.opening) == 0 {
		return 0
	}
	return max(time.Until(m.opening[0].late), 1)
}

// tooLate ends the paths that have not opened in time.
func (m *module) tooLate() (n int) {
	for len(m.opening) > 0 {
		e := m.opening[0]
		if !e.opened && !e.closed {
			if time.Now().Before(e.late) {
				break
			}
			e.Close()
			n++
			m.env.Ended(m.name, e.peer, "send", fmt.Errorf("%w: the plugin has not said within %v whether it opens (open_timeout)", btl.ErrNeverOpened, m.params.Opening))
		}
		m.opening = m.opening[1:]
	}
	return n
}

// messagesPerPoll bounds a Poll.
const messagesPerPoll = 64

// Poll implements progress.Source.
func (m *module) Poll() (n int) {
	if m.dead != nil {
		return 0
	}
	switch asleep := m.env.Bell().Armed(); {
	case asleep: // or about to be; the plugin may have written to a descriptor that was read since
		m.sleeps.Arm()
		m.slept = true
	case m.sleeps.Armed():
		m.sleeps.Disarm()
	}
	if n = m.take(messagesPerPoll); m.dead != nil {
		return n
	}
	n += m.flush()
	if n == 0 && len(m.opening) > 0 {
		n += m.tooLate()
	}
	if n == 0 {
		if m.slept {
			n += m.woken()
		}
		if err := m.process.ended(); err != nil {
			n += m.dies(err)
		}
	}
	return n
}

// take takes up to so many messages of the plugin. One that makes no sense ends it: nothing behind
// can be read.
func (m *module) take(most int) (n int) {
	published := m.process.published.Load()
	for range most {
		b, err := m.consumer.Next()
		if err == nil && b == nil {
			if m.took >= published {
				break
			}
			err = fmt.Errorf("%d of %d messages are not in the ring", published-m.took, published)
		}
		n++
		m.took++
		if err == nil {
			err = m.message(b)
		}
		if err != nil {
			m.process.end(fmt.Errorf("what the plugin sent makes no sense: %w", err))
			return n + m.dies(m.process.ended())
		}
		m.release()
	}
	return n
}

// release gives the plugin's last message back.
func (m *module) release() {
	if m.consumer.Release() {
		m.plugin.Ring()
	}
}

// woken reads what a plugin has written that saw this process sleep. Who polls without sleeping
// does not pay for that. What is written later has the next sleep end early.
func (m *module) woken() (n int) {
	var count [8]byte
	if _, err := unix.Read(m.wake, count[:]); err == nil {
		n++
	}
	m.slept = m.env.Bell().Armed()
	return n
}

// dies tells the protocol that all paths have ended, and how.
func (m *module) dies(why error) int {
	m.dead = why
	m.queue, m.opening = nil, nil
	m.blob.Store(nil)
	again := m.ends(why)
	peers := map[framework.Life]bool{} // whether a path had opened
	for _, e := range m.out {
		peers[e.peer] = peers[e.peer] || e.credit > 0 || e.sent > 0
	}
	for _, p := range m.in {
		peers[p.peer] = true
	}
	for peer, opened := range peers {
		err := why
		if !opened {
			err = fmt.Errorf("%w: %w", btl.ErrNeverOpened, why)
		}
		m.lose(peer, "send", err)
	}
	m.env.Logger.Error("plugin ended", "component", m.name, "why", again)
	return len(peers) + 1
}

// message takes one of the plugin's.
func (m *module) message(b []byte) error {
	kind, path, body, err := wire.Take(b)
	if err != nil {
		return err
	}
	var e *outbound
	var p *inbound
	if path%2 == 0 {
		e = m.out[path]
	} else {
		p = m.in[path]
	}
	was := path != 0 && (path%2 == 0 && path <= m.numbers || path%2 == 1 && path <= m.latest)
	switch {
	case kind == wire.Accept:
		return m.accept(path, body)
	case !was:
		return fmt.Errorf("message %d of path %d, which there never was", kind, path)
	case e == nil && p == nil: // it has ended here, which the plugin did not know
	case kind == wire.Frame && p != nil:
		return p.frame(body)
	case kind == wire.Opened && e != nil && !e.opened:
		e.opened, e.credit = true, wire.Credit
	case kind == wire.Credits && e != nil && len(body) == 4:
		more := binary.LittleEndian.Uint32(body)
		if more > wire.Credit || e.credit+int(more) > wire.Credit {
			return fmt.Errorf("credit of %d for path %d, which has %d", more, path, e.credit)
		}
		e.credit += int(more)
	case kind == wire.Idle && e != nil && len(body) == 8:
		if e.gone = binary.LittleEndian.Uint64(body); e.gone > e.sent {
			return fmt.Errorf("%d frames of path %d are gone, of %d", e.gone, path, e.sent)
		}
	case kind == wire.Ended && len(body) >= 4:
		m.ended(e, p, binary.LittleEndian.Uint32(body), string(body[4:min(len(body), 1004)]))
	default:
		return fmt.Errorf("message %d of path %d, of %d bytes", kind, path, len(body))
	}
	return nil
}

func (m *module) accept(path uint32, body []byte) error {
	c, err := wire.ParseCaller(body)
	if err != nil {
		return err
	}
	if path%2 == 0 || path <= m.latest {
		return fmt.Errorf("a peer's path has number %d, after %d", path, m.latest)
	}
	m.latest = path
	life, err := c.Life(m.env.Worlds)
	if err != nil {
		m.tell(wire.Refuse, path, []byte(err.Error()))
		return nil
	}
	p := &inbound{m: m, id: path, peer: life}
	m.in[path] = p
	p.up = m.env.Upcall.Accept(life)
	return nil
}

// ended takes the end of a path, of which the plugin says how.
func (m *module) ended(e *outbound, p *inbound, how uint32, why string) {
	err := fmt.Errorf("the plugin says: %q", why)
	switch how {
	case wire.Left:
		if p != nil {
			delete(m.in, p.id)
		}
		return
	case wire.NeverOpened:
		if e == nil {
			return
		}
		err = fmt.Errorf("%w: %w", btl.ErrNeverOpened, err)
	case wire.PeerClosed:
		err = fmt.Errorf("%w: %w", framework.ErrPeerClosed, err)
	}
	if e != nil {
		m.lose(e.peer, "send", err)
	} else {
		m.lose(p.peer, "receive", err)
	}
}

// lose ends all paths with a peer, and tells the protocol, once. A path that has never opened
// ends alone, and one that the protocol has closed ends in silence. The plugin hears of those
// that it may believe to go on.
func (m *module) lose(peer framework.Life, op string, err error) {
	never, tell := errors.Is(err, btl.ErrNeverOpened), false
	for id, e := range m.out {
		if e.peer == peer && (!never || !e.opened) {
			tell = tell || !e.closed
			e.closed = true
			e.gone = e.sent
			delete(m.out, id)
			m.tell(wire.Leave, id, nil)
		}
	}
	for id, p := range m.in {
		if p.peer == peer && !never {
			tell = true
			delete(m.in, id)
		}
	}
	if tell {
		m.env.Ended(m.name, peer, op, err)
	}
}

// Forget implements btl.Forgetter.
func (m *module) Forget(peer framework.Life) {
	for _, e := range m.out {
		if e.peer == peer {
			e.Close()
		}
	}
	for id, p := range m.in {
		if p.peer == peer {
			delete(m.in, id)
		}
	}
}

// Renew implements btl.Renewer. Paths have numbers, so that what the plugin still says of those
// of before is known to be old.
func (m *module) Renew(peer framework.Life) { m.Forget(peer) }
