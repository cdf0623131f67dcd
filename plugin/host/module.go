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
	"github.com/ferrympi/ferry/internal/doorbell"
	"github.com/ferrympi/ferry/plugin/internal/wire"
	"github.com/ferrympi/ferry/progress"
)

// module is the transport in the rank. The engine's lock guards it. It does not wait for the plugin, whose messages are handled by Poll.
type module struct {
	env       btl.Env
	component component
	params    *params
	name      string
	// Of the first plugin.
	firstOffer wire.Offer
	// An eventfd that each plugin writes to.
	wakeFD        int
	restartPolicy restartPolicy
	restarter     restarter
	// nil while no plugin runs.
	cardBlob atomic.Pointer[[]byte]

	// The other fields belong to the plugin that runs, or has run last.
	process   *process
	sendQueue sendQueue
	consumer  *ring.Consumer
	// Set while this process sleeps.
	sleepBell doorbell.Bell
	pathTable pathTable
	// Of messages.
	receivedCount uint64
	// The plugin may have written to wakeFD since the last read.
	hasSlept bool
	// Reason of the end, once the protocol is notified.
	endReason error
}

// attach connects the module with the rings of a new plugin.
func (m *module) attach(p *process) {
	toPlugin, toRank := wire.Rings(p.sharedMemory, p.ringCells)
	m.process = p
	producer, _ := ring.NewProducer(toPlugin[0], toPlugin[1]) // The memory has the right size.
	m.consumer, _ = ring.NewConsumer(toRank[0], toRank[1])
	m.sendQueue = sendQueue{producer: producer, pluginBell: progress.BellAt(p.sharedMemory[wire.PluginBell : wire.PluginBell+doorbell.Size])}
	m.sleepBell = doorbell.At(p.sharedMemory[wire.RankBell : wire.RankBell+doorbell.Size])
	m.pathTable = newPathTable()
	m.receivedCount, m.endReason = 0, nil
	m.cardBlob.Store(&p.offer.Blob)
}

// Caps returns the capabilities of the first plugin. A restarted plugin offers no less (checkSameLimits).
func (m *module) Caps() btl.Caps {
	o := m.firstOffer
	return btl.Caps{EagerLimit: int(o.Eager), FrameLimit: int(o.Frame), Exclusivity: int(o.Exclusivity), LatencyNS: float64(o.Latency), Device: o.Device}
}

// Blob returns the address of the present plugin, or nil if none runs.
func (m *module) Blob() []byte {
	if b := m.cardBlob.Load(); b != nil {
		return *b
	}
	return nil
}

// Describe implements btl.Describer. A restarted plugin may use another device.
func (m *module) Describe(framework.Peer) btl.Description {
	return btl.Description{Device: m.process.offer.Device}
}

// Reach reports whether the plugin is for such peers. A failure to reach a particular peer shows when a path is opened.
func (m *module) Reach(peer framework.Peer) error {
	kind := uint32(2)
	if peer.Proc == m.env.Identity.Proc {
		kind = 1
	}
	switch {
	case m.endReason != nil:
		return m.restartPolicy.downError()
	case m.firstOffer.Reaches&kind == 0:
		return btl.NotMeant(m.name + " is not for such peers")
	case len(peer.Blob) > wire.ControlLimit/2 || len(peer.Blob)+1024 > int(m.firstOffer.Frame) && len(peer.Blob) > 1024:
		return fmt.Errorf("%v publishes an address of %d bytes", peer.Proc, len(peer.Blob))
	}
	return nil
}

// Connect requests a path from the plugin.
func (m *module) Connect(peer framework.Peer) (btl.Endpoint, error) {
	if err := m.Reach(peer); err != nil {
		return nil, err
	}
	e := &outbound{m: m, peer: peer.Incarnation, openDeadline: time.Now().Add(m.params.OpenTimeout)}
	m.pathTable.addOutbound(e)
	target := wire.Target{Caller: wire.CallerOf(peer.Incarnation, m.env.Worlds), Namespace: peer.Proc.Namespace, Greeting: m.env.Greet(peer.Incarnation), Blob: peer.Blob}
	m.sendMessage(wire.Connect, e.id, target.Bytes())
	return e, nil
}

// sendMessage sends a message. Messages are sent in the order of the calls.
func (m *module) sendMessage(kind, path uint32, body []byte) {
	if m.endReason != nil {
		return
	}
	if !m.sendQueue.send(kind, path, body) {
		m.env.Engine.Nudge()
	}
}

// sendFrame sends a frame in two parts.
func (m *module) sendFrame(path uint32, head, tail []byte) {
	if m.endReason == nil && m.sendQueue.sendFrame(path, head, tail) { // The memory of an ended plugin is not mapped.
		return
	}
	m.sendMessage(wire.Frame, path, slices.Concat(head, tail))
}

// FD and Arm implement waiting for the module. The plugin writes to the descriptor only if this process is asleep.
func (m *module) FD() int { return m.wakeFD }

func (m *module) Arm() bool {
	if m.endReason != nil { // The memory is not mapped.
		return true
	}
	m.sleepBell.Arm()
	m.hasSlept = true
	if m.consumer.Ready() || m.process.endError() != nil {
		m.sleepBell.Disarm()
		return false
	}
	return true
}

// Due implements progress.Timed for the time limit of opening a path.
func (m *module) Due() time.Duration {
	if len(m.pathTable.openingPaths) == 0 {
		return 0
	}
	return max(time.Until(m.pathTable.openingPaths[0].openDeadline), 1)
}

// expireOpenings ends the paths that have not opened within the time limit.
func (m *module) expireOpenings() (n int) {
	for len(m.pathTable.openingPaths) > 0 {
		e := m.pathTable.openingPaths[0]
		if !e.isOpened && !e.isClosed {
			if time.Now().Before(e.openDeadline) {
				break
			}
			e.Close()
			n++
			m.env.Ended(m.name, e.peer, "send", fmt.Errorf("%w: no reply of the plugin within %v (open_timeout)", btl.ErrNeverOpened, m.params.OpenTimeout))
		}
		m.pathTable.openingPaths = m.pathTable.openingPaths[1:]
	}
	return n
}

// messagesPerPoll bounds a Poll.
const messagesPerPoll = 64

// Poll implements progress.Source.
func (m *module) Poll() (n int) {
	if m.endReason != nil {
		return 0
	}
	switch asleep := m.env.Bell().Armed(); {
	case asleep: // Or about to be. The plugin may have written to wakeFD since the last read.
		m.sleepBell.Arm()
		m.hasSlept = true
	case m.sleepBell.Armed():
		m.sleepBell.Disarm()
	}
	if n = m.receive(messagesPerPoll); m.endReason != nil {
		return n
	}
	n += m.sendQueue.flush()
	if n == 0 && len(m.pathTable.openingPaths) > 0 {
		n += m.expireOpenings()
	}
	if n == 0 {
		if m.hasSlept {
			n += m.readWake()
		}
		if err := m.process.endError(); err != nil {
			n += m.endAllPaths(err)
		}
	}
	return n
}

// receive handles at most most messages of the plugin. An invalid one ends the plugin, because the following ones cannot be decoded.
func (m *module) receive(most int) (n int) {
	published := m.process.publishedCount.Load()
	for range most {
		b, err := m.consumer.Next()
		if err == nil && b == nil {
			if m.receivedCount >= published {
				break
			}
			err = fmt.Errorf("%d of %d messages are not in the ring", published-m.receivedCount, published)
		}
		n++
		m.receivedCount++
		if err == nil {
			err = m.handleMessage(b)
		}
		if err != nil {
			m.process.terminate(fmt.Errorf("invalid message from the plugin: %w", err))
			return n + m.endAllPaths(m.process.endError())
		}
		m.release()
	}
	return n
}

// release returns the cells of the plugin's last message.
func (m *module) release() {
	if m.consumer.Release() {
		m.sendQueue.pluginBell.Ring()
	}
}

// readWake reads wake if this process has slept since the last read. A process that only polls has no cost. A later write ends the next sleep early.
func (m *module) readWake() (n int) {
	var count [8]byte
	if _, err := unix.Read(m.wakeFD, count[:]); err == nil {
		n++
	}
	m.hasSlept = m.env.Bell().Armed()
	return n
}

// endAllPaths ends all paths, and notifies the protocol.
func (m *module) endAllPaths(why error) int {
	m.endReason = why
	m.sendQueue.waitingMessages, m.pathTable.openingPaths = nil, nil
	m.cardBlob.Store(nil)
	again := m.scheduleRestart(why)
	peers := map[framework.Incarnation]bool{} // Whether a path had opened.
	for _, e := range m.pathTable.outbounds {
		peers[e.peer] = peers[e.peer] || e.credit > 0 || e.sentFrames > 0
	}
	for _, p := range m.pathTable.inbounds {
		peers[p.peer] = true
	}
	for peer, opened := range peers {
		err := why
		if !opened {
			err = fmt.Errorf("%w: %w", btl.ErrNeverOpened, why)
		}
		m.endPathsTo(peer, "send", err)
	}
	m.env.Logger.Error("plugin ended", "component", m.name, "why", again)
	return len(peers) + 1
}

// handleMessage handles one message of the plugin.
func (m *module) handleMessage(b []byte) error {
	kind, path, body, err := wire.Take(b)
	if err != nil {
		return err
	}
	e, p, existed := m.pathTable.find(path)
	switch {
	case kind == wire.Accept:
		return m.accept(path, body)
	case !existed:
		return fmt.Errorf("message %d of path %d, which never existed", kind, path)
	case e == nil && p == nil: // The path has ended here, and the plugin had not been notified.
	case kind == wire.Frame && p != nil:
		return p.frame(body)
	case kind == wire.Opened && e != nil && !e.isOpened:
		e.isOpened, e.credit = true, wire.Credit
	case kind == wire.Credits && e != nil && len(body) == 4:
		more := binary.LittleEndian.Uint32(body)
		if more > wire.Credit || e.credit+int(more) > wire.Credit {
			return fmt.Errorf("credit of %d for path %d, which has %d", more, path, e.credit)
		}
		e.credit += int(more)
	case kind == wire.Idle && e != nil && len(body) == 8:
		if e.completedFrames = binary.LittleEndian.Uint64(body); e.completedFrames > e.sentFrames {
			return fmt.Errorf("%d frames of path %d are completed, but %d were sent", e.completedFrames, path, e.sentFrames)
		}
	case kind == wire.Ended && len(body) >= 4:
		m.handlePathEnd(e, p, binary.LittleEndian.Uint32(body), string(body[4:min(len(body), 1004)]))
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
	if path%2 == 0 || path <= m.pathTable.lastInbound {
		return fmt.Errorf("a peer's path has number %d, after %d", path, m.pathTable.lastInbound)
	}
	m.pathTable.lastInbound = path
	incarnation, err := c.Incarnation(m.env.Worlds)
	if err != nil {
		m.sendMessage(wire.Refuse, path, []byte(err.Error()))
		return nil
	}
	p := &inbound{m: m, id: path, peer: incarnation}
	m.pathTable.inbounds[path] = p
	p.upcall = m.env.Upcall.Accept(incarnation)
	return nil
}

// handlePathEnd handles the end of a path. how and why are those of the plugin.
func (m *module) handlePathEnd(e *outbound, p *inbound, how uint32, why string) {
	err := fmt.Errorf("the plugin reports: %q", why)
	switch how {
	case wire.Left:
		if p != nil {
			delete(m.pathTable.inbounds, p.id)
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
		m.endPathsTo(e.peer, "send", err)
	} else {
		m.endPathsTo(p.peer, "receive", err)
	}
}

// endPathsTo ends all paths with a peer, and notifies the protocol once. A path that has never opened ends alone. The end of a path that the protocol has
// closed is not reported. The plugin is notified of all paths that it may still use.
func (m *module) endPathsTo(peer framework.Incarnation, op string, err error) {
	never, tell := errors.Is(err, btl.ErrNeverOpened), false
	for id, e := range m.pathTable.outbounds {
		if e.peer == peer && (!never || !e.isOpened) {
			tell = tell || !e.isClosed
			e.isClosed = true
			e.completedFrames = e.sentFrames
			delete(m.pathTable.outbounds, id)
			m.sendMessage(wire.Leave, id, nil)
		}
	}
	for id, p := range m.pathTable.inbounds {
		if p.peer == peer && !never {
			tell = true
			delete(m.pathTable.inbounds, id)
		}
	}
	if tell {
		m.env.Ended(m.name, peer, op, err)
	}
}

// Forget implements btl.Forgetter.
func (m *module) Forget(peer framework.Incarnation) {
	for _, e := range m.pathTable.outbounds {
		if e.peer == peer {
			e.Close()
		}
	}
	for id, p := range m.pathTable.inbounds {
		if p.peer == peer {
			delete(m.pathTable.inbounds, id)
		}
	}
}

// Reconnect implements btl.Reconnector. Path numbers are not reused, so that late messages of old paths are detected.
func (m *module) Reconnect(peer framework.Incarnation) { m.Forget(peer) }
