// Package match pairs messages with receives as MPI requires (MPI-4.1 section
// 3.5): messages of one sender in the order of their sends, receives in the
// order in which they were posted, with wildcards for source and tag. It is
// pure: no locks, no memory of its own, no knowledge of transports. Every PML
// shares it, one Queues per (communicator, plane).
//
// Recv and Message are intrusive list nodes: a PML embeds them in its requests
// and buffered messages and sets Owner once, so that matching allocates nothing.
//
// Cost: an arrival looks through the receives posted for its source and those
// posted for any source; a receive looks through the unexpected messages of its
// source, or of all. Each is a walk of a list that is usually short.
package match

// Wildcards.
const (
	AnySource = -1
	AnyTag    = -2
)

// Recv is a posted receive. R is what the PML embeds it in.
type Recv[R any] struct {
	Source int // rank, or AnySource
	Tag    int // or AnyTag
	Owner  *R

	stamp      uint64 // order of posting
	next, prev *Recv[R]
	list       *recvList[R]
}

// Message is a message that arrived before its receive. M is what the PML
// embeds it in.
type Message[M any] struct {
	Source int
	Tag    int
	Owner  *M

	// A message is in two lists: all messages by arrival, and those of its source.
	nextAll, prevAll *Message[M]
	nextSrc, prevSrc *Message[M]
	from             *messageList[M]
}

// Peer is the part of the queues that concerns one source. A PML keeps the
// pointer beside what else it knows of the source.
type Peer[R, M any] struct {
	posted     recvList[R]
	unexpected messageList[M]
}

// Queues are the posted and the unexpected queue. The zero value is empty and
// ready. Not safe for concurrent use: the PML's lock guards it.
type Queues[R, M any] struct {
	wildcards recvList[R]    // receives from any source
	all       messageList[M] // unexpected messages of all sources, linked by nextAll
	stamp     uint64
}

type recvList[R any] struct{ head, tail *Recv[R] }

func (l *recvList[R]) push(r *Recv[R]) {
	r.list, r.next, r.prev = l, nil, l.tail
	if l.tail == nil {
		l.head = r
	} else {
		l.tail.next = r
	}
	l.tail = r
}

func (l *recvList[R]) remove(r *Recv[R]) {
	if r.prev == nil {
		l.head = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		l.tail = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.list, r.next, r.prev, r.stamp = nil, nil, nil, 0
}

// pop is remove of r, which is the head.
func (l *recvList[R]) pop(r *Recv[R]) {
	next := r.next
	l.head = next
	if next == nil {
		l.tail = nil
	} else {
		next.prev = nil
	}
	r.list = nil
}

// first returns the oldest receive that takes tag.
func (l *recvList[R]) first(tag int) *Recv[R] {
	for r := l.head; r != nil; r = r.next {
		if r.Tag == tag || r.Tag == AnyTag {
			return r
		}
	}
	return nil
}

type messageList[M any] struct{ head, tail *Message[M] }

// Idle reports whether nothing waits that a receive from p, or a message of p,
// could match or would have to wait behind.
func (q *Queues[R, M]) Idle(p *Peer[R, M]) bool {
	return p.posted.head == nil && q.wildcards.head == nil && p.unexpected.head == nil
}

// Arrive finds the receive for a message from p with the given tag, and takes
// it out of its queue: of all posted receives that match, the one posted first.
// nil: none waits; the PML then keeps the message and calls Keep.
func (q *Queues[R, M]) Arrive(p *Peer[R, M], tag int) *Recv[R] {
	// The usual case, small enough to be inlined: the oldest receive takes it.
	if r := p.posted.head; r != nil && r.Tag == tag && q.wildcards.head == nil {
		p.posted.pop(r)
		return r
	}
	return q.arrive(p, tag)
}

func (q *Queues[R, M]) arrive(p *Peer[R, M], tag int) *Recv[R] {
	r := p.posted.first(tag)
	if q.wildcards.head != nil {
		if w := q.wildcards.first(tag); w != nil && (r == nil || w.stamp < r.stamp) {
			r = w
		}
	}
	if r != nil {
		r.list.remove(r)
	}
	return r
}

// Keep queues a message from p that found no receive.
func (q *Queues[R, M]) Keep(p *Peer[R, M], m *Message[M]) {
	m.from = &p.unexpected
	m.nextAll, m.prevAll = nil, q.all.tail
	if q.all.tail == nil {
		q.all.head = m
	} else {
		q.all.tail.nextAll = m
	}
	q.all.tail = m
	m.nextSrc, m.prevSrc = nil, p.unexpected.tail
	if p.unexpected.tail == nil {
		p.unexpected.head = m
	} else {
		p.unexpected.tail.nextSrc = m
	}
	p.unexpected.tail = m
}

// Post gives a receive. It returns the message that matches it, taken out of
// the unexpected queue: the one that arrived first. nil: the receive is queued.
// p is the peer of r.Source, and not used when that is AnySource.
func (q *Queues[R, M]) Post(p *Peer[R, M], r *Recv[R]) *Message[M] {
	if r.Source == AnySource || p.unexpected.head != nil {
		return q.post(p, r)
	}
	q.stamp++
	r.stamp = q.stamp
	p.posted.push(r)
	return nil
}

func (q *Queues[R, M]) post(p *Peer[R, M], r *Recv[R]) *Message[M] {
	if m := q.Find(p, r.Source, r.Tag); m != nil {
		q.Take(m)
		return m
	}
	q.stamp++
	r.stamp = q.stamp
	if r.Source == AnySource {
		q.wildcards.push(r)
	} else {
		p.posted.push(r)
	}
	return nil
}

// Find returns the message that a receive for source and tag would get now,
// and leaves it in the queue (probe).
func (q *Queues[R, M]) Find(p *Peer[R, M], source, tag int) *Message[M] {
	if source == AnySource {
		for m := q.all.head; m != nil; m = m.nextAll {
			if tag == AnyTag || m.Tag == tag {
				return m
			}
		}
		return nil
	}
	for m := p.unexpected.head; m != nil; m = m.nextSrc {
		if tag == AnyTag || m.Tag == tag {
			return m
		}
	}
	return nil
}

// Take takes an unexpected message out of the queue (matched probe).
func (q *Queues[R, M]) Take(m *Message[M]) {
	if m.prevAll == nil {
		q.all.head = m.nextAll
	} else {
		m.prevAll.nextAll = m.nextAll
	}
	if m.nextAll == nil {
		q.all.tail = m.prevAll
	} else {
		m.nextAll.prevAll = m.prevAll
	}
	l := m.from
	if m.prevSrc == nil {
		l.head = m.nextSrc
	} else {
		m.prevSrc.nextSrc = m.nextSrc
	}
	if m.nextSrc == nil {
		l.tail = m.prevSrc
	} else {
		m.nextSrc.prevSrc = m.prevSrc
	}
	m.nextAll, m.prevAll, m.nextSrc, m.prevSrc, m.from = nil, nil, nil, nil, nil
}

// Cancel takes a posted receive out of its queue. It reports whether it was
// there: false means that it has matched, or was never queued.
func (q *Queues[R, M]) Cancel(r *Recv[R]) bool {
	if r.list == nil {
		return false
	}
	r.list.remove(r)
	return true
}

// Posted calls f for every receive posted for p, or for those from any source
// when p is nil, in the order of posting. f may cancel the receive that it is
// given.
func (q *Queues[R, M]) Posted(p *Peer[R, M], f func(*Recv[R])) {
	l := &q.wildcards
	if p != nil {
		l = &p.posted
	}
	for r := l.head; r != nil; {
		next := r.next
		f(r)
		r = next
	}
}

// Unexpected calls f for every unexpected message in the order of arrival. f may
// take the message that it is given.
func (q *Queues[R, M]) Unexpected(f func(*Message[M])) {
	for m := q.all.head; m != nil; {
		next := m.nextAll
		f(m)
		m = next
	}
}
