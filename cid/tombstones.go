package cid

import "sync"

// EndpointID identifies the handle that one endpoint of a process has of a communicator.
// The endpoint is 0 in a communicator of whole processes.
type EndpointID struct {
	Extended
	Endpoint uint16
}

// Tombstones remembers the closed handles of communicators, so that a late
// message to one is dropped and counted, while one for a communicator that does
// not exist here yet is kept.
//
// It is bounded: when it is full, the oldest record goes. A message to such a
// communicator that is still under way then looks like one for a communicator
// to come. It is kept, under the flow control that bounds all such messages,
// and is never delivered, because an endpoint is in a communicator once. So a lost
// record costs memory up to that bound, never a wrong delivery. And a record is
// needed only until every member's last message to the communicator has come, which
// is soon after its close.
//
// It is safe for concurrent use.
type Tombstones struct {
	mu     sync.Mutex
	limit  int
	has    map[EndpointID]struct{}
	ring   []EndpointID // in the order of Add; a ring once it is full
	oldest int
}

// NewTombstones returns an empty record of at most limit ids, at least 1.
func NewTombstones(limit int) *Tombstones {
	return &Tombstones{limit: limit, has: map[EndpointID]struct{}{}}
}

// Add records that id is closed. Adding it again does nothing.
func (t *Tombstones) Add(id EndpointID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.has[id]; ok {
		return
	}
	t.has[id] = struct{}{}
	if len(t.ring) < t.limit {
		t.ring = append(t.ring, id)
		return
	}
	delete(t.has, t.ring[t.oldest])
	t.ring[t.oldest] = id
	t.oldest = (t.oldest + 1) % t.limit
}

// Has reports whether id is recorded as closed.
func (t *Tombstones) Has(id EndpointID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.has[id]
	return ok
}
