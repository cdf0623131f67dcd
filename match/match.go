// Package match matches messages with receives as MPI requires (MPI-4.1 section 3.5). Messages of one
// sender match in the order of their sends, and receives in the order of their posting, with wildcards
// for source and tag. The package is pure code without locks, and does not depend on transports. All PMLs
// use it, with one Queues for each communicator and plane. mtl/ofi uses it for messages that its network
// cannot hold, and for acknowledgments of synchronous sends.
//
// Recv and Message are intrusive list entries. A PML embeds them in its requests and buffered messages,
// and sets Owner once, so that matching allocates no memory.
//
// An arrival searches for the oldest receive from its source and the oldest one from any source. A
// receive searches for the oldest unexpected message of its source, or of all sources. Each search walks a
// list that is usually short. After a long walk, a list has an index by tag until it is short
// again, so that a match takes constant time at any length.
package match

// Wildcards.
const (
	AnySource = -1
	AnyTag    = -2
)

// Entry is an element of a queue, either a posted receive or an unexpected message. The PML embeds it in
// a T.
type Entry[T any] struct {
	// Source is a rank, or AnySource for a receive.
	Source int
	// Tag may be AnyTag for a receive.
	Tag   int
	Owner *T

	// postStamp is the position of a receive in the order of posting.
	postStamp uint64
	// sourceList is nil if the entry is not queued.
	sourceList *list[T]
	chainLinks [2]links[T]
	// tagLinks links the entries with the same tag in an index of that list.
	tagLinks [2]links[T]
}

// Recv is a posted receive.
type Recv[R any] = Entry[R]

// Message is an unexpected message.
type Message[M any] = Entry[M]

// Chains of an entry. An unexpected message is in the list of its source, and in that of all messages by
// arrival. A receive is only in the list of its source.
const (
	bySource = iota
	byArrival
)

type links[T any] struct{ next, prev *Entry[T] }

type list[T any] struct {
	head, tail *Entry[T]
	tagIndex   *index[T] // nil until the first long walk
}

func (l *list[T]) push(e *Entry[T], chain int) {
	e.chainLinks[chain] = links[T]{prev: l.tail}
	if l.tail == nil {
		l.head = e
	} else {
		l.tail.chainLinks[chain].next = e
	}
	l.tail = e
}

// append is push for a list that may have an index.
func (l *list[T]) append(e *Entry[T], chain int) {
	l.push(e, chain)
	if l.tagIndex != nil {
		l.tagIndex.add(e, chain)
	}
}

func (l *list[T]) remove(e *Entry[T], chain int) {
	if l.tagIndex != nil {
		l.tagIndex.remove(e, chain)
	}
	at := &e.chainLinks[chain]
	if at.prev == nil {
		l.head = at.next
	} else {
		at.prev.chainLinks[chain].next = at.next
	}
	if at.next == nil {
		l.tail = at.prev
	} else {
		at.next.chainLinks[chain].prev = at.prev
	}
	*at = links[T]{}
}

// pop removes the head of a list without an index, in chain bySource.
func (l *list[T]) pop() {
	next := l.head.chainLinks[bySource].next
	l.head.sourceList, l.head = nil, next
	if next == nil {
		l.tail = nil
	} else {
		next.chainLinks[bySource].prev = nil
	}
}

// first returns the oldest entry that matches tag. Either tag may be AnyTag.
func (l *list[T]) first(tag, chain int) *Entry[T] {
	walked := 0
	for e := l.head; e != nil; e = e.chainLinks[chain].next {
		if e.Tag == tag || e.Tag == AnyTag || tag == AnyTag {
			return e
		}
		if walked++; walked == longWalk || l.tagIndex != nil && l.tagIndex.isActive {
			return l.lookupTag(tag, chain)
		}
	}
	return nil
}

// each calls f for all entries. f may remove the entry that it gets.
func (l *list[T]) each(chain int, f func(*Entry[T])) {
	for e := l.head; e != nil; {
		next := e.chainLinks[chain].next
		f(e)
		e = next
	}
}

// Peer has the queues of one source. A PML keeps it with its state of the source.
type Peer[R, M any] struct {
	posted     list[R]
	unexpected list[M]
	// needsSlowPost is set if a receive may match an unexpected message, or posted has an index.
	needsSlowPost bool
}

// Queues are the posted and the unexpected queue. The zero value is empty and ready for use. It is not
// safe for concurrent use. The PML's lock guards it.
type Queues[R, M any] struct {
	// wildcards has the receives from any source.
	wildcards list[R]
	// arrivals has the unexpected messages of all sources, by arrival.
	arrivals  list[M]
	lastStamp uint64
	// needsSlowArrive is set if there may be receives from any source, or an index of posted receives.
	needsSlowArrive bool
	// hasIndexed is set once a list of posted receives has had an index.
	hasIndexed bool
}

// Order has entries in the order of Push, independent of their sources and of Queues. It uses the links
// that only messages in Queues use, so that posted receives may be in one. An entry is in at most one
// Order.
type Order[T any] struct{ all list[T] }

// Push appends an entry.
func (o *Order[T]) Push(e *Entry[T]) { o.all.push(e, byArrival) }

// Remove removes an entry, which must be in the Order.
func (o *Order[T]) Remove(e *Entry[T]) { o.all.remove(e, byArrival) }

// First returns the oldest entry, or nil.
func (o *Order[T]) First() *Entry[T] { return o.all.head }

// IsIdle reports whether no entry could match a receive from p or a message of p, or would have to be handled
// before it.
func (q *Queues[R, M]) IsIdle(p *Peer[R, M]) bool {
	return p.posted.head == nil && q.wildcards.head == nil && p.unexpected.head == nil
}

// Arrive removes and returns the oldest posted receive that matches a message from p with this tag. It
// returns nil if there is none. The PML then buffers the message and calls AddUnexpected.
func (q *Queues[R, M]) Arrive(p *Peer[R, M], tag int) *Recv[R] {
	// The usual case, which is inlined, is that the oldest receive matches.
	if r := p.posted.head; r != nil && r.Tag == tag && !q.needsSlowArrive {
		p.posted.pop()
		return r
	}
	return q.arriveSlow(p, tag)
}

func (q *Queues[R, M]) arriveSlow(p *Peer[R, M], tag int) *Recv[R] {
	q.needsSlowArrive = q.hasIndexed || q.wildcards.head != nil
	r := p.posted.first(tag, bySource)
	if w := q.wildcards.first(tag, bySource); w != nil && (r == nil || w.postStamp < r.postStamp) {
		r = w
	}
	if p.posted.tagIndex != nil {
		q.needsSlowArrive, q.hasIndexed, p.needsSlowPost = true, true, true
	}
	if r != nil {
		q.Cancel(r)
	}
	return r
}

// AddUnexpected queues an unexpected message from p.
func (q *Queues[R, M]) AddUnexpected(p *Peer[R, M], m *Message[M]) {
	m.sourceList, p.needsSlowPost = &p.unexpected, true
	q.arrivals.append(m, byArrival)
	p.unexpected.append(m, bySource)
}

// Post removes and returns the oldest unexpected message that matches a receive. If there is none, it
// queues the receive and returns nil. p is the peer of r.Source, and unused for AnySource.
func (q *Queues[R, M]) Post(p *Peer[R, M], r *Recv[R]) *Message[M] {
	if r.Source == AnySource || p.needsSlowPost {
		return q.postSlow(p, r)
	}
	q.stampReceive(r, &p.posted)
	p.posted.push(r, bySource)
	return nil
}

func (q *Queues[R, M]) postSlow(p *Peer[R, M], r *Recv[R]) *Message[M] {
	if m := q.Find(p, r.Source, r.Tag); m != nil {
		q.RemoveUnexpected(m)
		return m
	}
	l := &q.wildcards
	if r.Source == AnySource {
		q.needsSlowArrive = true
	} else {
		l, p.needsSlowPost = &p.posted, p.unexpected.head != nil || p.posted.tagIndex != nil
	}
	q.stampReceive(r, l)
	l.append(r, bySource)
	return nil
}

// stampReceive assigns the next stamp and the list of a receive.
func (q *Queues[R, M]) stampReceive(r *Recv[R], l *list[R]) {
	q.lastStamp++
	r.postStamp, r.sourceList = q.lastStamp, l
}

// Find returns the message that a receive with this source and tag would match, without removing it
// (probe).
func (q *Queues[R, M]) Find(p *Peer[R, M], source, tag int) *Message[M] {
	if source == AnySource {
		return q.arrivals.first(tag, byArrival)
	}
	return p.unexpected.first(tag, bySource)
}

// RemoveUnexpected removes an unexpected message (matched probe).
func (q *Queues[R, M]) RemoveUnexpected(m *Message[M]) {
	q.arrivals.remove(m, byArrival)
	m.sourceList.remove(m, bySource)
	m.sourceList = nil
}

// Cancel removes a posted receive. It returns false if the receive has matched, or was never queued.
func (q *Queues[R, M]) Cancel(r *Recv[R]) bool {
	if r.sourceList == nil {
		return false
	}
	r.sourceList.remove(r, bySource)
	r.sourceList = nil
	return true
}

// Posted calls f for every receive posted for p, or for any source if p is nil, in the order of posting.
// f may cancel the receive that it gets.
func (q *Queues[R, M]) Posted(p *Peer[R, M], f func(*Recv[R])) {
	l := &q.wildcards
	if p != nil {
		l = &p.posted
	}
	l.each(bySource, f)
}

// FirstPosted returns the oldest receive that Posted would pass to f, or nil. A PML that ends receives
// uses it in a loop if ending one may cancel others.
func (q *Queues[R, M]) FirstPosted(p *Peer[R, M]) *Recv[R] {
	if p != nil {
		return p.posted.head
	}
	return q.wildcards.head
}

// Unexpected calls f for every unexpected message in the order of arrival. f may remove the message that
// it gets.
func (q *Queues[R, M]) Unexpected(f func(*Message[M])) { q.arrivals.each(byArrival, f) }

// FirstUnexpected returns the oldest unexpected message, or nil.
func (q *Queues[R, M]) FirstUnexpected() *Message[M] { return q.arrivals.head }
