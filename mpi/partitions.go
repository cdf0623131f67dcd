package mpi

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/ferrympi/ferry/internal/mem"
	"github.com/ferrympi/ferry/pml"
)

// partitions is the partitioned communication of a communicator. Its messages are on the control plane with the tag
// Comm.tagMax, which CreateGroup does not use. Fields below isUsed are guarded by the engine's lock.
type partitions struct {
	isUsed         atomic.Bool
	channelsByPeer map[int]*partitionChannel
	// Of operations.
	activeCount int
	// The communicator is closed.
	isClosing bool
	// Longest message that all transports carry.
	maxMessage int64
}

// partitionChannel has the messages with one rank in both directions. In each direction they are one sequence.
type partitionChannel struct {
	c    *Comm
	peer int
	// Number of initializations, by tag and direction. initIndex is 0.
	initCounts map[partitionKey]uint64
	operations map[partitionKey]*partitioned
	// For sends without an initialization.
	earlyClearances map[partitionKey]clearance
	// failedRounds has the last failed round of each receive that has failed. The sender may not know of the failure, and completes its
	// round, whose messages are dropped.
	failedRounds map[partitionKey]uint64
	// droppedPayload is the length of the next message if that is a payload without a receive, and 0 otherwise.
	droppedPayload int
	activeCount    int
	// Pending receive of the next header, or nil.
	listener *pml.Request
	// listen is active in a caller.
	isListening bool
	// The peer cannot be reached. Start retries.
	isStopped bool
	// The communicator is revoked. All messages are received and dropped, see drain.
	isDraining bool
	// The peer has sent an invalid message. No operation starts.
	invalidErr error
	messageBuf []byte // Of listener.
	pushQueue  []*partitioned
	// push is active in a caller.
	isPushing    bool
	freeMessages []*partitionMessage
}

// partitionKey identifies an operation within a channel.
type partitionKey struct {
	tag       int
	isSend    bool
	initIndex uint64
}

// mostEarlyClearances bounds partitionChannel.earlyClearances. A receiver has one for each operation that it has started.
const mostEarlyClearances = 1 << 16

// partitionMessage is a message in progress. operation is nil if none waits for it.
type partitionMessage struct {
	channel   *partitionChannel
	operation *partitioned
	request   *pml.Request
	buf       []byte // Reused.
	isRecv    bool
	// Of a received payload.
	offset, length int
}

// join adds an operation at its initialization.
func (p *partitions) join(o *partitioned) error {
	c := o.c
	p.isUsed.Store(true) // Before the check, see closing.
	e := c.rankState.engine
	e.Lock()
	defer e.Release()
	if c.isClosed() {
		return c.errClosed()
	}
	if p.channelsByPeer == nil {
		p.channelsByPeer = map[int]*partitionChannel{}
		p.maxMessage = c.module.Caps().MaxMessage
	}
	ch := p.channelsByPeer[o.peer]
	if ch == nil {
		ch = &partitionChannel{
			c: c, peer: o.peer, initCounts: map[partitionKey]uint64{}, operations: map[partitionKey]*partitioned{}, earlyClearances: map[partitionKey]clearance{},
			messageBuf: make([]byte, partitionMessageSize),
		}
		p.channelsByPeer[o.peer] = ch
	}
	o.channel = ch
	key := partitionKey{tag: o.tag, isSend: o.isSend}
	o.initIndex = ch.initCounts[key]
	ch.initCounts[key]++
	key = o.key()
	ch.operations[key] = o
	o.send.clear, o.send.hasClear = ch.earlyClearances[key]
	delete(ch.earlyClearances, key)
	return nil
}

func (o *partitioned) key() partitionKey { return partitionKey{o.tag, o.isSend, o.initIndex} }

// leave removes an operation that is freed. ErrPending while it is active.
func (o *partitioned) leave() error {
	e := o.c.rankState.engine
	e.Lock()
	defer e.Release()
	if o.isActive {
		return fmt.Errorf("%w: the partitioned operation is active; wait for it first", ErrPending)
	}
	o.isFreed = true
	if ch := o.channel; ch != nil {
		delete(ch.operations, o.key())
		if len(ch.operations) == 0 && !ch.isDraining {
			ch.unlisten()
		}
	}
	return nil
}

// finished counts the end of an operation, and ends the communicator with the last one if that is closed.
func (p *partitions) finished(c *Comm, ch *partitionChannel) {
	p.activeCount--
	if !p.isClosing {
		return
	}
	if ch != nil && ch.activeCount == 0 {
		ch.unlisten()
	}
	if p.activeCount == 0 {
		go c.endPart() // It takes the lock.
	}
}

// closing reports whether operations of a closed communicator are active. endPart is called after the last one.
func (p *partitions) closing(c *Comm) bool {
	if !p.isUsed.Load() {
		return false
	}
	e := c.rankState.engine
	e.Lock()
	defer e.Release()
	p.isClosing = true
	for _, ch := range p.channelsByPeer {
		if ch.activeCount == 0 {
			ch.unlisten()
		}
	}
	return p.activeCount > 0
}

// fail ends the active operations.
func (p *partitions) fail(c *Comm, err error) {
	if !p.isUsed.Load() {
		return
	}
	e := c.rankState.engine
	e.Lock()
	defer e.Release()
	for _, ch := range p.channelsByPeer {
		ch.fail(err)
		ch.drain()
	}
}

// isBusy reports whether operations are active.
func (p *partitions) isBusy(c *Comm) bool {
	if !p.isUsed.Load() {
		return false
	}
	e := c.rankState.engine
	e.Lock()
	defer e.Unlock()
	return p.activeCount > 0
}

// start starts a round of an operation.
func (ch *partitionChannel) start(o *partitioned) {
	if ch.invalidErr != nil {
		o.fail(ch.invalidErr)
		return
	}
	ch.isStopped = false
	ch.listen()
	if err := o.takeClearance(); err != nil {
		ch.reject(err)
	}
	ch.push(o)
}

// listen posts the receive of the next header, unless that is posted or no operation needs it.
func (ch *partitionChannel) listen() {
	if ch.isListening {
		return
	}
	ch.isListening = true
	defer func() { ch.isListening = false }()
	for ch.listener == nil && ch.isExpecting() {
		r := ch.c.pml.StartRecv(pml.Buffer{Bytes: ch.messageBuf}, ch.peer, ch.c.tagMax, pml.Control)
		ch.listener = r
		if !r.Done() {
			r.Notify(ch)
			return
		}
		ch.takeHeader()
	}
}

// isExpecting reports whether a further message is to be received.
func (ch *partitionChannel) isExpecting() bool {
	switch {
	case ch.c.partitions.isClosing && ch.activeCount == 0:
		return false
	case ch.isDraining:
		return true
	}
	return len(ch.operations) > 0 && !ch.isStopped
}

// drain receives and drops all messages, after fail and until the end of the communicator. A network may hold the buffer of a send
// until its message is received, and the peer may not be notified of the revocation yet.
func (ch *partitionChannel) drain() {
	ch.isDraining = true
	ch.listen()
}

// unlisten withdraws the receive of the next header. A message that has matched is processed.
func (ch *partitionChannel) unlisten() {
	if ch.listener != nil {
		ch.listener.CancelLocked()
	}
}

// Completed implements pml.Notifier for the listener.
func (ch *partitionChannel) Completed(*pml.Request) {
	ch.takeHeader()
	ch.listen()
}

// takeHeader consumes the listener, which is complete.
func (ch *partitionChannel) takeHeader() {
	r := ch.listener
	ch.listener = nil
	st, _, err := r.Take(r.Generation())
	if st.Canceled {
		return
	}
	isDropped := ch.droppedPayload > 0 && st.Bytes == ch.droppedPayload
	ch.droppedPayload = 0
	switch {
	case isDropped && (err == nil || st.Bytes > len(ch.messageBuf)):
	case ch.isDraining:
		ch.isDraining = err == nil || st.Bytes > len(ch.messageBuf) // Otherwise none can come.
	case err != nil && st.Bytes > len(ch.messageBuf):
		ch.reject(fmt.Errorf("message of %d bytes with a header", st.Bytes))
	case err != nil:
		ch.lose(err)
	default:
		if err := ch.take(ch.messageBuf[:st.Bytes]); err != nil {
			ch.reject(err)
		}
	}
}

// take processes a message. It returns an error about the peer.
func (ch *partitionChannel) take(message []byte) error {
	h, payload, err := parsePartitionHeader(message)
	if err != nil {
		return err
	}
	key := partitionKey{h.tag, h.kind == clearToSend, h.initIndex}
	o := ch.operations[key]
	if h.kind == clearToSend {
		return ch.takeClearance(o, key, &h)
	}
	if failed, hasFailed := ch.failedRounds[key]; hasFailed && h.round <= failed {
		if h.kind == partitionNext {
			ch.droppedPayload = int(h.length)
		}
		return nil
	}
	if o == nil || !o.isActive || h.round != o.round {
		return fmt.Errorf("%d bytes for no started receive with tag %d", h.length, h.tag)
	}
	switch h.kind {
	case partitionRefuse:
		o.fail(o.errLengths(len(o.buf), o.partitionCount, h.offset, h.length))
		return nil
	case partitionNext:
		if err := o.claim(&h); err != nil {
			return err
		}
		ch.recvPayload(o, int(h.offset), int(h.length))
		return nil
	}
	err = o.claim(&h)
	if err == nil {
		copy(o.buf[h.offset:], payload)
		err = o.arrived(int(h.offset), int(h.length))
	}
	if err == nil {
		o.settle()
	}
	return err
}

// takeClearance stores a message of the receiver for a send, which may not be started or initialized. A message of a later round replaces
// an earlier one, whose round has failed in the receiver.
func (ch *partitionChannel) takeClearance(o *partitioned, key partitionKey, h *partitionHeader) error {
	c := clearance{h.round, h.offset, h.length}
	if o != nil {
		if o.send.hasClear && c.round <= o.send.clear.round {
			return fmt.Errorf("clear to send of round %d before the end of round %d", h.round, o.send.clear.round)
		}
		o.send.clear, o.send.hasClear = c, true
		return o.takeClearance()
	}
	if h.initIndex < ch.initCounts[partitionKey{tag: h.tag, isSend: true}] { // It is freed.
		return nil
	}
	if kept, isKept := ch.earlyClearances[key]; isKept && c.round <= kept.round || !isKept && len(ch.earlyClearances) == mostEarlyClearances {
		return fmt.Errorf("clear to send of %d operations without a send", len(ch.earlyClearances)+1)
	}
	ch.earlyClearances[key] = c
	return nil
}

// reject ends all operations with the peer for an invalid message, now and later.
func (ch *partitionChannel) reject(err error) {
	ch.invalidErr = badMessage(ch.c.group.members.at(ch.peer).Proc, fmt.Errorf("partitioned communication: rank %d: %w", ch.peer, err))
	ch.fail(ch.invalidErr)
}

// lose ends the operations that need a further header, because none can come. The messages of the others end by themselves.
func (ch *partitionChannel) lose(err error) {
	ch.isStopped = true
	for _, o := range ch.operations {
		if o.isActive && o.needsHeader() {
			o.fail(cmp.Or(ch.c.terminalError(), err))
		}
	}
}

// fail ends the active operations with the peer.
func (ch *partitionChannel) fail(err error) {
	err = cmp.Or(ch.c.terminalError(), err)
	ch.isStopped = true
	ch.unlisten()
	for _, o := range ch.operations {
		o.fail(err)
	}
}

// recordFailure records that the current round of a receive has failed.
func (ch *partitionChannel) recordFailure(o *partitioned) {
	if ch.failedRounds == nil {
		ch.failedRounds = map[partitionKey]uint64{}
	}
	ch.failedRounds[o.key()] = o.round
}

// push starts the messages of an operation, after those of the queue. Nested calls only queue, so that a header and
// its payload are adjacent.
func (ch *partitionChannel) push(o *partitioned) {
	if !o.isQueued {
		o.isQueued = true
		ch.pushQueue = append(ch.pushQueue, o)
	}
	if ch.isPushing {
		return
	}
	ch.isPushing = true
	for len(ch.pushQueue) > 0 {
		o := ch.pushQueue[0]
		ch.pushQueue = slices.Delete(ch.pushQueue, 0, 1)
		o.isQueued = false
		o.proceed()
	}
	ch.isPushing = false
}

// newMessage returns a message from the free list, or a new one.
func (ch *partitionChannel) newMessage(o *partitioned) *partitionMessage {
	m := &partitionMessage{channel: ch}
	if last := len(ch.freeMessages) - 1; last >= 0 {
		m, ch.freeMessages = ch.freeMessages[last], ch.freeMessages[:last]
	}
	m.operation = o
	if o != nil {
		o.pendingMessages = append(o.pendingMessages, m)
	}
	return m
}

// freeMessage ends a message.
func (ch *partitionChannel) freeMessage(m *partitionMessage) {
	if o := m.operation; o != nil {
		i := slices.Index(o.pendingMessages, m)
		o.pendingMessages = slices.Delete(o.pendingMessages, i, i+1)
	}
	*m = partitionMessage{channel: ch, buf: m.buf}
	ch.freeMessages = append(ch.freeMessages, m)
}

// sendHeader sends a message without payload. o is nil if no operation waits for it.
func (ch *partitionChannel) sendHeader(o *partitioned, h *partitionHeader) bool {
	m := ch.newMessage(o)
	m.buf = h.appendTo(m.buf[:0])
	return ch.send(m, pml.Buffer{Bytes: m.buf})
}

// sendData sends the bytes from first to end of a buffer.
func (ch *partitionChannel) sendData(o *partitioned, first, end int) {
	h := partitionHeader{partitionData, o.tag, o.initIndex, o.round, uint64(first), uint64(end - first)}
	data := o.buf[first:end]
	if len(data) > partitionMessageSize-partitionHeaderSize {
		h.kind = partitionNext
		if ch.sendHeader(o, &h) {
			ch.send(ch.newMessage(o), pml.Buffer{Bytes: data, Form: o.form})
		}
		return
	}
	m := ch.newMessage(o)
	m.buf = append(h.appendTo(m.buf[:0]), data...)
	ch.send(m, pml.Buffer{Bytes: m.buf})
}

// send starts a message. If it cannot be started, the operations with the peer have failed.
func (ch *partitionChannel) send(m *partitionMessage, b pml.Buffer) bool {
	r, err := ch.c.pml.StartSend(b, ch.peer, ch.c.tagMax, pml.Control, pml.Standard)
	if err != nil {
		ch.freeMessage(m)
		ch.fail(err)
		return false
	}
	m.follow(r)
	return true
}

// recvPayload receives the next message into a buffer.
func (ch *partitionChannel) recvPayload(o *partitioned, offset, length int) {
	m := ch.newMessage(o)
	m.isRecv, m.offset, m.length = true, offset, length
	m.follow(ch.c.pml.StartRecv(pml.Buffer{Bytes: o.buf[offset : offset+length]}, ch.peer, ch.c.tagMax, pml.Control))
}

// follow waits for the end of a message that has just started.
func (m *partitionMessage) follow(r *pml.Request) {
	m.request = r
	if r.Done() {
		m.Completed(r)
		return
	}
	r.Notify(m)
	if o := m.operation; o != nil && o.err != nil { // Meanwhile.
		r.CancelLocked()
	}
}

// Completed implements pml.Notifier.
func (m *partitionMessage) Completed(r *pml.Request) {
	ch, o, isRecv, offset, length := m.channel, m.operation, m.isRecv, m.offset, m.length
	st, _, err := r.Take(r.Generation())
	ch.freeMessage(m)
	switch {
	case st.Canceled && isRecv:
		ch.droppedPayload = length
	case st.Canceled:
	case isRecv && (err == nil || st.Bytes > length) && st.Bytes != length:
		ch.reject(fmt.Errorf("payload of %d bytes in place of %d", st.Bytes, length))
	case err != nil:
		ch.fail(err)
	case isRecv:
		if err := o.arrived(offset, length); err != nil {
			ch.reject(err)
		}
	}
	if o == nil {
		return
	}
	if o.isActive && o.send.isClear {
		ch.push(o)
	}
	o.settle()
}

// partitionsUse returns ErrPending if an active partitioned operation uses the memory.
func (e *process) partitionsUse(memory []byte) error {
	for _, c := range e.partitioning() {
		if c.partitions.uses(c, memory) {
			return fmt.Errorf("%w: a partitioned operation of communicator %s uses the memory", ErrPending, c.label())
		}
	}
	return nil
}

func (p *partitions) uses(c *Comm, memory []byte) bool {
	e := c.rankState.engine
	e.Lock()
	defer e.Unlock()
	for _, ch := range p.channelsByPeer {
		for _, o := range ch.operations {
			if o.isActive && len(o.buf) > 0 && mem.Within(memory, o.buf) {
				return true
			}
		}
	}
	return false
}
