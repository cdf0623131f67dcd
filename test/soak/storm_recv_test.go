package soak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ferrympi/ferry/mpi"
)

// receiver receives the messages of a stream.
type receiver struct {
	*stormPlayer
	at           int
	stream       *stream
	outcomes     *streamOutcomes
	pending      []pendingRecv
	heldMessages []heldMessage
	isOver       bool
}

// pendingRecv is a pending receive.
type pendingRecv struct {
	i          int
	what       string
	request    mpi.Request
	persistent *mpi.Persistent
	buf        []byte
}

// heldMessage is a message that is received after later ones.
type heldMessage struct {
	i, due  int
	claimed *mpi.Message
}

func (x *receiver) run() {
	time.Sleep(x.stream.startDelay)
	for i := range x.stream.messages {
		m := &x.stream.messages[i]
		x.receiveDue(i)
		if x.isOver || m.receivedAfter != never && !x.step() {
			break
		}
		x.receive(i, m)
		x.awaitWindow(x.stream.recvWindow)
	}
	x.receiveDue(math.MaxInt)
	x.awaitWindow(0)
}

func (x *receiver) name(i int) string {
	m := &x.stream.messages[i]
	return fmt.Sprintf("%s %d of stream %d from %d (communicator %d, tag %d, %d bytes)", recvNames[m.recv], i, x.at, x.stream.from, x.stream.comm, m.tag, m.size)
}

// receive receives a message, or records that it is received later.
func (x *receiver) receive(i int, m *envelope) {
	c, from, buf := x.comms[x.stream.comm], x.stream.from, make([]byte, m.size)
	if m.receivedAfter != 0 {
		h := heldMessage{i: i, due: i + m.receivedAfter}
		if m.recv == mprobeRecv || m.recv == improbeIrecv {
			err := x.guarded(x.untilClose, x.name(i), func(ctx context.Context) (err error) {
				h.claimed, _, err = c.Mprobe(ctx, from, m.tag)
				return err
			})
			if err != nil {
				x.recordRecv(i, buf, mpi.Status{}, err)
				return
			}
		}
		if m.receivedAfter == never {
			x.outcomes.set(i, outcomeNotReceived)
			x.mu.Lock()
			x.claimedMessages = append(x.claimedMessages, h.claimed)
			x.mu.Unlock()
			return
		}
		x.heldMessages = append(x.heldMessages, h)
		return
	}
	var st mpi.Status
	var err error
	switch m.recv {
	case recvPosted, persistentRecv:
		q := pendingRecv{i: i, what: x.name(i), buf: buf}
		if m.recv == recvPosted {
			q.request, err = c.Irecv(buf, from, m.tag)
		} else if q.persistent, err = c.RecvInit(buf, from, m.tag); err == nil {
			if err = q.persistent.Start(); err == nil {
				q.request = q.persistent.Request()
			}
		}
		if err == nil {
			x.pending = append(x.pending, q)
			return
		}
	default:
		err = x.guarded(x.untilClose, x.name(i), func(ctx context.Context) (err error) {
			st, err = receiveBy(ctx, c, m.recv, buf, from, m.tag)
			return err
		})
	}
	x.recordRecv(i, buf, st, err)
}

// receiveBy receives a message by one of the blocking methods.
func receiveBy(ctx context.Context, c *mpi.Comm, way recvMethod, buf []byte, from, tag int) (st mpi.Status, err error) {
	var m *mpi.Message
	switch way {
	case recvAnyTag:
		return c.Recv(ctx, buf, from, mpi.AnyTag)
	case iprobeRecv, improbeIrecv:
		for ok := false; !ok; runtime.Gosched() {
			if way == iprobeRecv {
				st, ok, err = c.Iprobe(from, tag)
			} else {
				m, st, ok, err = c.Improbe(from, tag)
			}
			if err == nil && ctx.Err() != nil && !ok {
				err = context.Cause(ctx)
			}
			if err != nil {
				return st, err
			}
		}
		if way == improbeIrecv {
			q, err := m.Irecv(buf)
			if err != nil {
				return st, err
			}
			return q.Wait(context.WithoutCancel(ctx)) // It has matched.
		}
		return c.Recv(ctx, buf, st.Source, tag)
	case mprobeRecv:
		if m, _, err = c.Mprobe(ctx, from, tag); err != nil {
			return st, err
		}
		return m.Recv(ctx, buf)
	}
	return c.Recv(ctx, buf, from, tag)
}

// receiveDue receives the held messages that are due.
func (x *receiver) receiveDue(at int) {
	for len(x.heldMessages) > 0 && !x.isOver && x.untilClose.Err() == nil {
		k := slices.IndexFunc(x.heldMessages, func(h heldMessage) bool { return h.due <= at })
		if k < 0 {
			return
		}
		h := x.heldMessages[k]
		x.heldMessages = slices.Delete(x.heldMessages, k, k+1)
		m := &x.stream.messages[h.i]
		buf := make([]byte, m.size)
		var st mpi.Status
		err := x.guarded(x.untilClose, x.name(h.i), func(ctx context.Context) (err error) {
			if h.claimed != nil {
				st, err = h.claimed.Recv(ctx, buf)
			} else {
				st, err = receiveBy(ctx, x.comms[x.stream.comm], m.recv, buf, x.stream.from, m.tag)
			}
			return err
		})
		x.recordRecv(h.i, buf, st, err)
	}
}

// awaitWindow waits until at most window receives are pending.
func (x *receiver) awaitWindow(window int) {
	for len(x.pending) > window {
		q := x.pending[0]
		x.pending = x.pending[1:]
		var st mpi.Status
		err := x.guarded(x.untilClose, q.what, func(ctx context.Context) (err error) {
			st, err = q.request.Wait(ctx)
			return err
		})
		if errors.Is(err, errClosing) { // Only the wait has ended.
			x.mu.Lock()
			x.stormPlayer.leftRecvs = append(x.stormPlayer.leftRecvs, q.request)
			x.mu.Unlock()
		}
		x.recordRecv(q.i, q.buf, st, err)
		if q.persistent != nil && err == nil {
			if err := q.persistent.Free(); err != nil {
				x.recordWrong("free: %s: %v", q.what, err)
			}
		}
	}
}

// recordRecv records the outcome of a receive.
func (x *receiver) recordRecv(i int, buf []byte, st mpi.Status, err error) {
	if x.isStray(i, buf, st, err) {
		x.outcomes.set(i, outcomeMissed)
		return
	}
	k := x.recordError(x.stream.from, x.name(i), err)
	if k == 0 {
		k = outcomeReceived
		x.checkMessage(x.at, i, buf, st)
	}
	x.isOver = x.isOver || k == outcomeHung
	x.outcomes.set(i, k)
}

// isStray reports whether a receive has matched the message of an earlier one that failed. A message
// in flight may arrive after the end of its sender was reported.
func (x *receiver) isStray(i int, buf []byte, st mpi.Status, err error) bool {
	if err != nil && !errors.Is(err, mpi.ErrTruncate) || !x.storm.mayLose(x.me, x.stream.from) {
		return false
	}
	if err == nil && x.stream.isMessage(x.at, i, buf) {
		return false
	}
	before := x.outcomes.String()
	for k, m := range x.stream.messages[:i] {
		if m.tag == x.stream.messages[i].tag && m.size == st.Bytes && strings.ContainsRune("PTC", rune(before[k])) {
			if err != nil {
				return true // The contents of a short buffer are undefined (MPI-4.1, 3.2.4).
			}
			want := make([]byte, m.size)
			pattern(want, x.at, k)
			n := min(len(buf), m.size)
			return bytes.Equal(buf[:n], want[:n])
		}
	}
	return false
}

// checkMessage compares a received message with the sent one.
func (p *stormPlayer) checkMessage(at, i int, buf []byte, st mpi.Status) {
	s := &p.storm.streams[at]
	m := &s.messages[i]
	if same := s.isMessage(at, i, buf); st.Source != s.from || st.Tag != m.tag || st.Bytes != m.size || st.Canceled || !same {
		p.recordWrong("contents: message %d of stream %d from %d (tag %d, %d bytes): %+v, the same: %t", i, at, s.from, m.tag, m.size, st, same)
	}
}

// receiveWild receives the messages of a communicator from any source while several ranks may still
// send one. Otherwise such a receive would wait for a rank that has left.
func (p *stormPlayer) receiveWild(comm int) {
	next, largest := map[int]int{}, 0 // By stream.
	for i := range p.storm.streams {
		if st := &p.storm.streams[i]; st.isAnySource && st.to == p.me && st.comm == comm {
			next[i] = 0
			for _, m := range st.messages {
				largest = max(largest, m.size)
			}
		}
	}
	c, anySource := p.comms[comm], true
	for n := 0; len(next) > 0 && p.step(); n++ {
		at, from := -1, mpi.AnySource
		for i := range next {
			at = max(at, i)
		}
		if len(next) < 2 || !anySource {
			from = p.storm.streams[at].from
		}
		way := p.storm.streams[at].messages[next[at]].recv
		if way == recvAnyTag {
			way = recv
		}
		what := fmt.Sprintf("%s from %d on communicator %d, tag %d", recvNames[way], from, comm, wildTag)
		buf := make([]byte, largest)
		var st mpi.Status
		err := p.guarded(p.untilClose, what, func(ctx context.Context) (err error) {
			st, err = receiveBy(ctx, c, way, buf, from, wildTag)
			return err
		})
		if err != nil {
			peer := from
			if from == mpi.AnySource && p.storm.kind == "shortage" {
				peer = everywhere // The error does not name a rank.
			} else if from == mpi.AnySource {
				peer = p.storm.fault.rank
			}
			switch k := p.recordError(peer, what, err); {
			case k == outcomeHung || k == outcomeWithdrawn || k == outcomePendingAtClose:
				p.received[at].set(next[at], k)
				return
			case from == mpi.AnySource:
				anySource = false // The path to the failed rank ends these.
				p.steps.Add(-1)
			default:
				for i := next[at]; i < len(p.storm.streams[at].messages); i++ {
					p.received[at].set(i, k)
				}
				delete(next, at)
			}
			continue
		}
		at = slices.IndexFunc(p.storm.streams, func(s stream) bool {
			return s.isAnySource && s.comm == comm && s.to == p.me && s.from == st.Source
		})
		i, ok := next[at]
		for ok && p.storm.mayLose(p.me, st.Source) && i < len(p.storm.streams[at].messages)-1 && !p.storm.streams[at].isMessage(at, i, buf[:st.Bytes]) {
			p.received[at].set(i, outcomeMissed) // It was withdrawn, or matched by a receive from any source that failed.
			i++
		}
		if !ok {
			p.recordWrong("contents: %s: nobody had sent %+v", what, st)
			return
		}
		p.checkMessage(at, i, buf[:min(len(buf), p.storm.streams[at].messages[i].size)], st)
		p.received[at].set(i, outcomeReceived)
		if next[at] = i + 1; next[at] == len(p.storm.streams[at].messages) {
			delete(next, at)
		}
	}
}

// isMessage reports whether b is a message of the stream.
func (st *stream) isMessage(at, i int, b []byte) bool {
	want := make([]byte, st.messages[i].size)
	pattern(want, at, i)
	return bytes.Equal(b, want)
}
