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

// receiver receives a stream's messages.
type receiver struct {
	*player
	at     int
	stream *stream
	ledger *ledger
	posted []posted
	held   []held
	over   bool
}

// posted is a receive under way.
type posted struct {
	i          int
	what       string
	request    mpi.Request
	persistent *mpi.Persistent
	buf        []byte
}

// held is a message that is received after later ones.
type held struct {
	i, due  int
	claimed *mpi.Message
}

func (x *receiver) run() {
	time.Sleep(x.stream.late)
	for i := range x.stream.messages {
		m := &x.stream.messages[i]
		x.giveOut(i)
		if x.over || m.hold != never && !x.step() {
			break
		}
		x.receive(i, m)
		x.shorten(x.stream.recvWindow)
	}
	x.giveOut(math.MaxInt)
	x.shorten(0)
}

func (x *receiver) name(i int) string {
	m := &x.stream.messages[i]
	return fmt.Sprintf("%s %d of stream %d from %d (communicator %d, tag %d, %d bytes)", recvNames[m.recv], i, x.at, x.stream.from, x.stream.comm, m.tag, m.size)
}

// receive receives a message, or takes note that it is to come later.
func (x *receiver) receive(i int, m *envelope) {
	c, from, buf := x.comms[x.stream.comm], x.stream.from, make([]byte, m.size)
	if m.hold != 0 {
		h := held{i: i, due: i + m.hold}
		if m.recv == mprobeRecv || m.recv == improbeIrecv {
			err := x.under(x.life, x.name(i), func(ctx context.Context) (err error) {
				h.claimed, _, err = c.Mprobe(ctx, from, m.tag)
				return err
			})
			if err != nil {
				x.ended(i, buf, mpi.Status{}, err)
				return
			}
		}
		if m.hold == never {
			x.ledger.set(i, left)
			x.mu.Lock()
			x.claims = append(x.claims, h.claimed)
			x.mu.Unlock()
			return
		}
		x.held = append(x.held, h)
		return
	}
	var st mpi.Status
	var err error
	switch m.recv {
	case post, persistentRecv:
		q := posted{i: i, what: x.name(i), buf: buf}
		if m.recv == post {
			q.request, err = c.Irecv(buf, from, m.tag)
		} else if q.persistent, err = c.RecvInit(buf, from, m.tag); err == nil {
			if err = q.persistent.Start(); err == nil {
				q.request = q.persistent.Request()
			}
		}
		if err == nil {
			x.posted = append(x.posted, q)
			return
		}
	default:
		err = x.under(x.life, x.name(i), func(ctx context.Context) (err error) {
			st, err = receiveBy(ctx, c, m.recv, buf, from, m.tag)
			return err
		})
	}
	x.ended(i, buf, st, err)
}

// receiveBy is a receive of one of the ways that block.
func receiveBy(ctx context.Context, c *mpi.Comm, way recvWay, buf []byte, from, tag int) (st mpi.Status, err error) {
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
			return q.Wait(context.WithoutCancel(ctx)) // it has matched
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

// giveOut receives the held messages whose turn has come.
func (x *receiver) giveOut(at int) {
	for len(x.held) > 0 && !x.over && x.life.Err() == nil {
		k := slices.IndexFunc(x.held, func(h held) bool { return h.due <= at })
		if k < 0 {
			return
		}
		h := x.held[k]
		x.held = slices.Delete(x.held, k, k+1)
		m := &x.stream.messages[h.i]
		buf := make([]byte, m.size)
		var st mpi.Status
		err := x.under(x.life, x.name(h.i), func(ctx context.Context) (err error) {
			if h.claimed != nil {
				st, err = h.claimed.Recv(ctx, buf)
			} else {
				st, err = receiveBy(ctx, x.comms[x.stream.comm], m.recv, buf, x.stream.from, m.tag)
			}
			return err
		})
		x.ended(h.i, buf, st, err)
	}
}

// shorten waits until no more than so many receives are posted.
func (x *receiver) shorten(window int) {
	for len(x.posted) > window {
		q := x.posted[0]
		x.posted = x.posted[1:]
		var st mpi.Status
		err := x.under(x.life, q.what, func(ctx context.Context) (err error) {
			st, err = q.request.Wait(ctx)
			return err
		})
		if errors.Is(err, errClosing) { // only the wait has ended
			x.mu.Lock()
			x.player.posted = append(x.player.posted, q.request)
			x.mu.Unlock()
		}
		x.ended(q.i, q.buf, st, err)
		if q.persistent != nil && err == nil {
			if err := q.persistent.Free(); err != nil {
				x.wrong("free: %s: %v", q.what, err)
			}
		}
	}
}

// ended notes the end of a receive.
func (x *receiver) ended(i int, buf []byte, st mpi.Status, err error) {
	if x.stray(i, buf, st, err) {
		x.ledger.set(i, missed)
		return
	}
	k := x.ends(x.stream.from, x.name(i), err)
	if k == 0 {
		k = received
		x.check(x.at, i, buf, st)
	}
	x.over = x.over || k == hung
	x.ledger.set(i, k)
}

// stray reports whether a receive has taken the message of an earlier one that had failed:
// what has left the sender may come after its end was told.
func (x *receiver) stray(i int, buf []byte, st mpi.Status, err error) bool {
	if err != nil && !errors.Is(err, mpi.ErrTruncate) || !x.storm.loses(x.me, x.stream.from) {
		return false
	}
	if err == nil && x.stream.is(x.at, i, buf) {
		return false
	}
	before := x.ledger.String()
	for k, m := range x.stream.messages[:i] {
		if m.tag == x.stream.messages[i].tag && m.size == st.Bytes && strings.ContainsRune("PTC", rune(before[k])) {
			if err != nil {
				return true // what is in a buffer that was too short is not said (MPI-4.1, 3.2.4)
			}
			want := make([]byte, m.size)
			pattern(want, x.at, k)
			n := min(len(buf), m.size)
			return bytes.Equal(buf[:n], want[:n])
		}
	}
	return false
}

// check compares what has come with what was sent.
func (p *player) check(at, i int, buf []byte, st mpi.Status) {
	s := &p.storm.streams[at]
	m := &s.messages[i]
	if same := s.is(at, i, buf); st.Source != s.from || st.Tag != m.tag || st.Bytes != m.size || st.Canceled || !same {
		p.wrong("contents: message %d of stream %d from %d (tag %d, %d bytes): %+v, the same: %t", i, at, s.from, m.tag, m.size, st, same)
	}
}

// receiveWild receives a communicator's messages that may come from any source, as long
// as several can still send one: a receive from any source waits for ever if all that
// can come is of one that has left.
func (p *player) receiveWild(comm int) {
	next, largest := map[int]int{}, 0 // of streams
	for i := range p.storm.streams {
		if st := &p.storm.streams[i]; st.wild && st.to == p.me && st.comm == comm {
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
		err := p.under(p.life, what, func(ctx context.Context) (err error) {
			st, err = receiveBy(ctx, c, way, buf, from, wildTag)
			return err
		})
		if err != nil {
			peer := from
			if from == mpi.AnySource && p.storm.kind == "shortage" {
				peer = everywhere // the error is about somebody
			} else if from == mpi.AnySource {
				peer = p.storm.fault.rank
			}
			switch k := p.ends(peer, what, err); {
			case k == hung || k == withdrawn || k == open:
				p.got[at].set(next[at], k)
				return
			case from == mpi.AnySource:
				anySource = false // it is the way to the one that has failed that ends these
				p.steps.Add(-1)
			default:
				for i := next[at]; i < len(p.storm.streams[at].messages); i++ {
					p.got[at].set(i, k)
				}
				delete(next, at)
			}
			continue
		}
		at = slices.IndexFunc(p.storm.streams, func(s stream) bool {
			return s.wild && s.comm == comm && s.to == p.me && s.from == st.Source
		})
		i, ok := next[at]
		for ok && p.storm.loses(p.me, st.Source) && i < len(p.storm.streams[at].messages)-1 && !p.storm.streams[at].is(at, i, buf[:st.Bytes]) {
			p.got[at].set(i, missed) // withdrawn; or a receive from any source had matched it, and failed
			i++
		}
		if !ok {
			p.wrong("contents: %s: nobody had sent %+v", what, st)
			return
		}
		p.check(at, i, buf[:min(len(buf), p.storm.streams[at].messages[i].size)], st)
		p.got[at].set(i, received)
		if next[at] = i + 1; next[at] == len(p.storm.streams[at].messages) {
			delete(next, at)
		}
	}
}

// is reports whether b is a message of the stream.
func (st *stream) is(at, i int, b []byte) bool {
	want := make([]byte, st.messages[i].size)
	pattern(want, at, i)
	return bytes.Equal(b, want)
}
