package mpi

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// partitioned is one side of a partitioned operation. Fields below channel are guarded by the engine's lock.
type partitioned struct {
	pml.Request
	c      *Comm
	isSend bool
	buf    []byte
	// Of buf, for sends.
	form           *pml.Form
	partitionCount int
	// In bytes.
	partitionSize int
	peer, tag     int
	// See partitionHeader.
	initIndex uint64
	// nil if the peer is ProcNull.
	channel *partitionChannel

	isFreed bool
	// In channel.pushQueue.
	isQueued bool
	partitionedRound
	send partitionedSend
	recv partitionedRecv
}

// partitionedRound is the state of the latest round.
type partitionedRound struct {
	// Number of starts.
	round uint64
	// From Start until the request is consumed.
	isInUse bool
	// From Start until the request is complete.
	isActive bool
	// First error of the round.
	err             error
	pendingMessages []*partitionMessage
	// Callers that complete the request later, see settle.
	settleHolds int
}

// partitionedSend is the state of a send.
type partitionedSend struct {
	// Unready, ready or sent, by partition.
	states []byte
	// Of partitions that are ready.
	readyCount int
	// Number of partitions that are not sent.
	unsentCount int
	// Start of the search for ready partitions.
	searchStart int
	clear       clearance
	// clear has arrived, and is not consumed.
	hasClear bool
	// clear of this round is consumed.
	isClear bool
	refusal partitionHeader
	// refusal is to be sent.
	hasRefusal bool
}

// clearance is the content of clearToSend.
type clearance struct{ round, bufferBytes, partitionCount uint64 }

// partitionedRecv is the state of a receive.
type partitionedRecv struct {
	// By partition.
	missingBytes []int
	// Bytes that no header has announced.
	unclaimedBytes int
	// Bytes that have not arrived.
	unreceivedBytes int
	// All has arrived. An empty buffer has one message, too.
	isEnded bool
	// clearToSend is to be sent.
	needsClear bool
}

// States of a partition of a send.
const (
	unready byte = iota
	ready
	sent
)

// mostPartitionMessages bounds the messages in progress of one send. Partitions that become ready meanwhile are
// combined with their neighbors.
const mostPartitionMessages = 16

// start implements Persistent.startRequest.
func (o *partitioned) start() (Request, error) {
	c := o.c
	e := c.rankState.engine
	e.Lock()
	defer e.Release()
	switch {
	case c.isClosed():
		return Request{}, c.errClosed()
	case o.isInUse:
		return Request{}, fmt.Errorf("%w: the partitioned operation is active; wait for it first", ErrPending)
	}
	o.round++
	o.isInUse, o.isActive, o.err = true, true, nil
	o.Request.Start()
	q := Request{&o.Request, o.Generation()}
	c.partitions.activeCount++
	if o.channel != nil {
		o.channel.activeCount++
	}
	o.reset()
	why := c.terminalError()
	switch {
	case why != nil || o.channel == nil:
		o.err = why
		o.finish()
	default:
		o.settleHolds++
		o.channel.start(o)
		o.settleHolds--
		o.settle()
	}
	return q, nil
}

// reset prepares the state for a round.
func (o *partitioned) reset() {
	if o.isSend {
		clear(o.send.states)
		o.send.readyCount, o.send.unsentCount, o.send.searchStart, o.send.isClear = 0, o.partitionCount, 0, false
		return
	}
	for i := range o.recv.missingBytes {
		o.recv.missingBytes[i] = o.partitionSize
	}
	o.recv.unclaimedBytes, o.recv.unreceivedBytes, o.recv.isEnded, o.recv.needsClear = len(o.buf), len(o.buf), false, true
}

// markReady marks the partitions of spans, each first to last, as ready. On an error, no state changes.
func (o *partitioned) markReady(spans ...[2]int) error {
	e := o.c.rankState.engine
	e.Lock()
	defer e.Release()
	for _, s := range spans {
		if s[0] < 0 || s[1] >= o.partitionCount || s[0] > s[1] {
			return o.errRange(s[0], s[1])
		}
	}
	switch {
	case !o.isInUse:
		return fmt.Errorf("%w; start it before its partitions are ready", errInactive())
	case o.err != nil:
		return o.err
	}
	for n, s := range spans {
		for i := s[0]; i <= s[1]; i++ {
			if o.send.states[i] != unready {
				o.unmark(append(spans[:n:n], [2]int{s[0], i - 1}))
				return fmt.Errorf("%w: partition %d is ready already in this round", ErrPartition, i)
			}
			o.send.states[i] = ready
		}
		o.send.readyCount += s[1] - s[0] + 1
		o.send.searchStart = s[0]
	}
	if o.isActive && o.send.isClear {
		o.channel.push(o)
	}
	return nil
}

// unmark undoes a part of markReady. The last span is not counted.
func (o *partitioned) unmark(spans [][2]int) {
	for n, s := range spans {
		for i := s[0]; i <= s[1]; i++ {
			o.send.states[i] = unready
		}
		if n < len(spans)-1 {
			o.send.readyCount -= s[1] - s[0] + 1
		}
	}
}

func (o *partitioned) errRange(first, last int) error {
	text := fmt.Sprintf("partition %d", first)
	if first != last {
		text = fmt.Sprintf("partitions %d to %d", first, last)
	}
	return fmt.Errorf("%w: %s of an operation with %d", ErrPartition, text, o.partitionCount)
}

// hasArrived reports whether a partition of a receive is complete.
func (o *partitioned) hasArrived(partition int) (bool, error) {
	e := o.c.rankState.engine
	e.Lock()
	defer e.Release()
	switch {
	case partition < 0 || partition >= o.partitionCount:
		return false, o.errRange(partition, partition)
	case o.isFreed:
		return false, errInactive()
	}
	has := func() bool {
		return !o.isInUse || o.channel == nil || o.recv.isEnded || o.partitionSize > 0 && o.recv.missingBytes[partition] == 0
	}
	if !has() {
		e.Progress()
	}
	if has() {
		return true, nil
	}
	return false, o.err
}

// settle completes the request at the end of the round, once all its messages are complete.
func (o *partitioned) settle() {
	if !o.isActive || o.settleHolds > 0 || len(o.pendingMessages) > 0 {
		return
	}
	if o.err != nil || o.isSend && o.send.unsentCount == 0 || !o.isSend && o.recv.isEnded {
		o.finish()
	}
}

// finish completes the request.
func (o *partitioned) finish() {
	st := &o.Request.Status
	switch {
	case o.channel == nil && o.err == nil:
		*st = pml.Status(nullStatus())
	case o.isSend || o.err != nil:
		*st = pml.NoMessage()
	default:
		*st = pml.Status{Source: o.peer, Tag: o.tag, Bytes: len(o.buf)}
	}
	st.Err = o.err
	o.isActive = false
	o.Finish()
	if o.channel != nil {
		o.channel.activeCount--
	}
	o.c.partitions.finished(o.c, o.channel)
}

// fail ends the round. Messages that have matched complete first.
func (o *partitioned) fail(err error) {
	if !o.isActive || o.err != nil {
		return
	}
	o.err = err
	if !o.isSend {
		o.channel.recordFailure(o)
	}
	o.settleHolds++
	for _, m := range slices.Clone(o.pendingMessages) {
		if m.request != nil {
			m.request.CancelLocked()
		}
	}
	o.settleHolds--
	o.settle()
}

// proceed starts the messages that can be sent.
func (o *partitioned) proceed() {
	o.settleHolds++
	switch {
	case o.send.hasRefusal:
		o.send.hasRefusal = false
		o.channel.sendHeader(nil, &o.send.refusal)
	case o.recv.needsClear && o.isActive && o.err == nil:
		o.recv.needsClear = false
		o.channel.sendHeader(o, &partitionHeader{clearToSend, o.tag, o.initIndex, o.round, uint64(len(o.buf)), uint64(o.partitionCount)})
	}
	for o.isActive && o.err == nil && o.send.isClear && len(o.pendingMessages) < mostPartitionMessages {
		first, end := o.nextRun()
		if first == end {
			break
		}
		for i := first; i < end; i++ {
			o.send.states[i] = sent
		}
		o.send.unsentCount -= end - first
		o.channel.sendData(o, first*o.partitionSize, end*o.partitionSize)
	}
	o.settleHolds--
	o.settle()
}

// nextRun returns ready partitions that are adjacent. If partitions are empty, the run is all of them, or none.
func (o *partitioned) nextRun() (first, end int) {
	x := &o.send
	if x.readyCount-(o.partitionCount-x.unsentCount) == 0 || o.partitionSize == 0 && x.readyCount < o.partitionCount {
		return 0, 0
	}
	i := bytes.IndexByte(x.states[x.searchStart:], ready)
	if i >= 0 {
		i += x.searchStart
	} else {
		i = bytes.IndexByte(x.states, ready)
	}
	most := o.partitionCount
	if o.partitionSize > 0 {
		most = int(max(1, o.c.partitions.maxMessage/int64(o.partitionSize)))
	}
	first, end = i, i+1
	for first > 0 && end-first < most && x.states[first-1] == ready {
		first--
	}
	for end < o.partitionCount && end-first < most && x.states[end] == ready {
		end++
	}
	x.searchStart = end % o.partitionCount
	return first, end
}

// needsHeader reports whether the round needs a further header of the peer.
func (o *partitioned) needsHeader() bool {
	if o.isSend {
		return o.send.unsentCount > 0
	}
	return o.recv.unclaimedBytes > 0 || len(o.buf) == 0
}

// takeClearance starts the transfer if both sides are in the round. The round fails if the receiver is in a later one. takeClearance returns
// an error about the peer.
func (o *partitioned) takeClearance() error {
	x := &o.send
	if !o.isActive || o.err != nil || !x.hasClear || x.isClear {
		return nil
	}
	if x.clear.round > o.round {
		receiver := o.c.group.members.at(o.peer).Proc
		o.fail(&framework.TransportError{
			Component: "mpi", Peer: receiver.String(), Op: "send",
			Err: fmt.Errorf("partitioned send to rank %d, tag %d: round %d has failed in the receiver; its error has the reason", o.peer, o.tag, o.round),
		})
		return nil
	}
	x.hasClear, x.isClear = false, true
	if x.clear.round != o.round {
		return fmt.Errorf("clear to send of round %d in round %d", x.clear.round, o.round)
	}
	if x.clear.bufferBytes != uint64(len(o.buf)) {
		x.refusal, x.hasRefusal = partitionHeader{partitionRefuse, o.tag, o.initIndex, o.round, uint64(len(o.buf)), uint64(o.partitionCount)}, true
		o.channel.push(o)
		o.fail(o.errLengths(len(o.buf), o.partitionCount, x.clear.bufferBytes, x.clear.partitionCount))
		return nil
	}
	o.channel.push(o)
	return nil
}

// errLengths is the error of both sides if their lengths differ.
func (o *partitioned) errLengths(own, ownPartitions int, other, otherPartitions uint64) error {
	mine, theirs := "send", "receive"
	if !o.isSend {
		mine, theirs = theirs, mine
	}
	return fmt.Errorf("%w: partitioned %s with rank %d, tag %d, of %d bytes in %d partitions: the %s has %d bytes in %d partitions; use equal lengths",
		ErrTruncate, mine, o.peer, o.tag, own, ownPartitions, theirs, other, otherPartitions)
}

// claim checks the extent of a payload that is here or about to arrive.
func (o *partitioned) claim(h *partitionHeader) error {
	total := uint64(len(o.buf))
	if h.offset > total || h.length > total-h.offset || h.length > uint64(o.recv.unclaimedBytes) || (h.length == 0) != (total == 0) {
		return fmt.Errorf("payload of %d bytes at %d for a buffer of %d bytes, %d of which are left", h.length, h.offset, total, o.recv.unclaimedBytes)
	}
	o.recv.unclaimedBytes -= int(h.length)
	return nil
}

// arrived counts bytes that are in the buffer.
func (o *partitioned) arrived(offset, length int) error {
	for at := offset; at < offset+length; {
		i := at / o.partitionSize
		n := min((i+1)*o.partitionSize, offset+length) - at
		if o.recv.missingBytes[i] < n {
			return fmt.Errorf("bytes of partition %d arrive twice", i)
		}
		o.recv.missingBytes[i] -= n
		at += n
	}
	o.recv.unreceivedBytes -= length
	o.recv.isEnded = o.recv.unreceivedBytes == 0
	return nil
}

// Cancel implements pml.Owner. See Lasting.
func (o *partitioned) Cancel() {}

// Lasting implements pml.Lasting.
func (o *partitioned) Lasting() error {
	return fmt.Errorf("%w: a partitioned operation cannot be canceled", ErrUnsupported)
}

// Release implements pml.Owner.
func (o *partitioned) Release() { o.isInUse = false }

// First implements pml.Owner.
func (o *partitioned) First() progress.Source {
	if o.channel != nil && o.channel.listener != nil {
		return o.channel.listener.Source()
	}
	return nil
}
