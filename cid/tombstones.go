package cid

import "sync"

// EndpointID names the handle of a communicator at one endpoint of a process. The endpoint
// is 0 in a communicator of whole processes.
type EndpointID struct {
	Extended
	Endpoint uint16
}

// Tombstones records closed handles of communicators. A late message to one is dropped and
// counted, and a message to a communicator that does not exist here yet is queued.
//
// The number of records is bounded, and the oldest is dropped first. A late message to such a
// communicator is then queued as an early arrival, under the flow control that bounds those,
// and is never delivered, because an endpoint joins a communicator only once. A lost record
// therefore costs memory up to that bound, and no wrong delivery. A record is needed until
// every member's last message to the communicator has come, soon after its close.
//
// It is safe for concurrent use.
type Tombstones struct {
	mu          sync.Mutex
	maxRecords  int
	recordedIDs map[EndpointID]struct{}
	// idsByAge is a ring. Once it is full, oldestIndex is the next to replace.
	idsByAge    []EndpointID
	oldestIndex int
}

// NewTombstones returns an empty record of at most limit ids, which is at least 1.
func NewTombstones(limit int) *Tombstones {
	return &Tombstones{maxRecords: limit, recordedIDs: map[EndpointID]struct{}{}}
}

// Add records that id is closed. Adding it again has no effect.
func (t *Tombstones) Add(id EndpointID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.recordedIDs[id]; ok {
		return
	}
	t.recordedIDs[id] = struct{}{}
	if len(t.idsByAge) < t.maxRecords {
		t.idsByAge = append(t.idsByAge, id)
		return
	}
	delete(t.recordedIDs, t.idsByAge[t.oldestIndex])
	t.idsByAge[t.oldestIndex] = id
	t.oldestIndex = (t.oldestIndex + 1) % t.maxRecords
}

// Has reports whether id is recorded as closed.
func (t *Tombstones) Has(id EndpointID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.recordedIDs[id]
	return ok
}
