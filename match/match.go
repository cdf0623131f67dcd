// Package match pairs messages with receives as MPI requires (MPI-4.1 section
// 3.5): messages of one sender in the order of their sends, receives in the
// order in which they were posted, with wildcards for source and tag. It is
// pure: no locks, no memory of its own, no knowledge of transports. Every PML
// shares it, one Queues per (communicator, plane); and mtl/ofi has them for what its
// network has no room for, and for answers to synchronous sends.
//
// Recv and Message are intrusive list entries: a PML embeds them in its requests
// and buffered messages and sets Owner once, so that matching allocates nothing.
//
// Cost: an arrival looks for the oldest receive posted for its source and the oldest
// posted for any source; a receive looks for the oldest unexpected message of its source,
// or of all. Each is a walk of a list that is usually short. A list in which a walk was
// long gets an index by tag, and keeps it until the list is short again: a match takes
// constant time then, whatever the length.
package match

// Wildcards.
const (
	AnySource = -1
	AnyTag    = -2
)

// Entry is what waits in a queue: a posted receive, or a message that arrived before
// its receive. T is what the PML embeds it in.
type Entry[T any] struct {
	Source int // rank; of a receive also AnySource
	Tag    int // of a receive also AnyTag
	Owner  *T

	stamp uint64   // of a receive: order of posting
	list  *list[T] // of its source; nil: not queued
	in    [2]links[T]
	alike [2]links[T] // in an index of that list: the entries with its tag
}

// Recv is a posted receive.
type Recv[R any] = Entry[R]

// Message is a message that arrived before its receive.
type Message[M any] = Entry[M]

// A chain is a list's share of an entry. A message is in two lists: that of its source,
// where receives are too, and all messages by arrival.
const (
	bySource = iota
	byArrival
)

type links[T any] struct{ next, prev *Entry[T] }

type list[T any] struct {
	head, tail *Entry[T]
	index      *index[T] // nil: there never was one
}

func (l *list[T]) push(e *Entry[T], chain int) {
	e.in[chain] = links[T]{prev: l.tail}
	if l.tail == nil {
		l.head = e
	} else {
		l.tail.in[chain].next = e
	}
	l.tail = e
}

// append is push to a list that may have an index.
func (l *list[T]) append(e *Entry[T], chain int) {
	l.push(e, chain)
	if l.index != nil {
		l.index.add(e, chain)
	}
}

func (l *list[T]) remove(e *Entry[T], chain int) {
	if l.index != nil {
		l.index.remove(e, chain)
	}
	at := &e.in[chain]
	if at.prev == nil {
		l.head = at.next
	} else {
		at.prev.in[chain].next = at.next
	}
	if at.next == nil {
		l.tail = at.prev
	} else {
		at.next.in[chain].prev = at.prev
	}
	*at = links[T]{}
}

// pop is remove of the head, by source, of a list without index.
func (l *list[T]) pop() {
	next := l.head.in[bySource].next
	l.head.list, l.head = nil, next
	if next == nil {
		l.tail = nil
	} else {
		next.in[bySource].prev = nil
	}
}

// first returns the oldest entry whose tag goes with tag: one of the two may be AnyTag.
func (l *list[T]) first(tag, chain int) *Entry[T] {
	walked := 0
	for e := l.head; e != nil; e = e.in[chain].next {
		if e.Tag == tag || e.Tag == AnyTag || tag == AnyTag {
			return e
		}
		if walked++; walked == longWalk || l.index != nil && l.index.on {
			return l.lookup(tag, chain)
		}
	}
	return nil
}

// each calls f, which may remove the entry that it is given.
func (l *list[T]) each(chain int, f func(*Entry[T])) {
	for e := l.head; e != nil; {
		next := e.in[chain].next
		f(e)
		e = next
	}
}

// Peer is the part of the queues that concerns one source. A PML keeps the
// pointer beside what else it knows of the source.
type Peer[R, M any] struct {
	posted     list[R]
	unexpected list[M]
	look       bool // a receive may find a message, or posted has an index; see post
}

// Queues are the posted and the unexpected queue. The zero value is empty and
// ready. Not safe for concurrent use: the PML's lock guards it.
type Queues[R, M any] struct {
	wildcards list[R] // receives from any source
	all       list[M] // unexpected messages of all sources, by arrival
	stamp     uint64
	look      bool // there may be receives from any source, or an index of a posted list; see arrive
	indexed   bool // a posted list has an index, or had one
}

// Order is entries in the order in which they were pushed, whatever their sources, in Queues or in none:
// for who takes receives back, the oldest first. Its links are those that only a message
// in Queues uses. An entry is in one Order at a time.
type Order[T any] struct{ all list[T] }

// Push puts an entry at the end.
func (o *Order[T]) Push(e *Entry[T]) { o.all.push(e, byArrival) }

// Remove takes out an entry, which is there.
func (o *Order[T]) Remove(e *Entry[T]) { o.all.remove(e, byArrival) }

// First returns the oldest entry, or nil.
func (o *Order[T]) First() *Entry[T] { return o.all.head }

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
	if r := p.posted.head; r != nil && r.Tag == tag && !q.look {
		p.posted.pop()
		return r
	}
	return q.arrive(p, tag)
}

func (q *Queues[R, M]) arrive(p *Peer[R, M], tag int) *Recv[R] {
	q.look = q.indexed || q.wildcards.head != nil
	r := p.posted.first(tag, bySource)
	if w := q.wildcards.first(tag, bySource); w != nil && (r == nil || w.stamp < r.stamp) {
		r = w
	}
	if p.posted.index != nil {
		q.look, q.indexed, p.look = true, true, true
	}
	if r != nil {
		q.Cancel(r)
	}
	return r
}

// Keep queues a message from p that found no receive.
func (q *Queues[R, M]) Keep(p *Peer[R, M], m *Message[M]) {
	m.list, p.look = &p.unexpected, true
	q.all.append(m, byArrival)
	p.unexpected.append(m, bySource)
}

// Post gives a receive. It returns the message that matches it, taken out of
// the unexpected queue: the one that arrived first. nil: the receive is queued.
// p is the peer of r.Source, and not used when that is AnySource.
func (q *Queues[R, M]) Post(p *Peer[R, M], r *Recv[R]) *Message[M] {
	if r.Source == AnySource || p.look {
		return q.post(p, r)
	}
	q.order(r, &p.posted)
	p.posted.push(r, bySource)
	return nil
}

func (q *Queues[R, M]) post(p *Peer[R, M], r *Recv[R]) *Message[M] {
	if m := q.Find(p, r.Source, r.Tag); m != nil {
		q.Take(m)
		return m
	}
	l := &q.wildcards
	if r.Source == AnySource {
		q.look = true
	} else {
		l, p.look = &p.posted, p.unexpected.head != nil || p.posted.index != nil
	}
	q.order(r, l)
	l.append(r, bySource)
	return nil
}

// order says that a receive is the youngest, and of which list it will be.
func (q *Queues[R, M]) order(r *Recv[R], l *list[R]) {
	q.stamp++
	r.stamp, r.list = q.stamp, l
}

// Find returns the message that a receive for source and tag would get now,
// and leaves it in the queue (probe).
func (q *Queues[R, M]) Find(p *Peer[R, M], source, tag int) *Message[M] {
	if source == AnySource {
		return q.all.first(tag, byArrival)
	}
	return p.unexpected.first(tag, bySource)
}

// Take takes an unexpected message out of the queue (matched probe).
func (q *Queues[R, M]) Take(m *Message[M]) {
	q.all.remove(m, byArrival)
	m.list.remove(m, bySource)
	m.list = nil
}

// Cancel takes a posted receive out of its queue. It reports whether it was
// there: false means that it has matched, or was never queued.
func (q *Queues[R, M]) Cancel(r *Recv[R]) bool {
	if r.list == nil {
		return false
	}
	r.list.remove(r, bySource)
	r.list = nil
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
	l.each(bySource, f)
}

// FirstPosted returns the oldest receive that Posted would pass to f, or nil. A PML that ends receives
// takes the first one until there is none if ending one may cancel others.
func (q *Queues[R, M]) FirstPosted(p *Peer[R, M]) *Recv[R] {
	if p != nil {
		return p.posted.head
	}
	return q.wildcards.head
}

// Unexpected calls f for every unexpected message in the order of arrival. f may
// take the message that it is given.
func (q *Queues[R, M]) Unexpected(f func(*Message[M])) { q.all.each(byArrival, f) }

// FirstUnexpected returns the unexpected message that arrived first, or nil.
func (q *Queues[R, M]) FirstUnexpected() *Message[M] { return q.all.head }
