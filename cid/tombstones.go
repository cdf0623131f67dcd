package cid

import "sync"

// tombstones is how many closed communicators the zero Tombstones remembers:
// about 1 MiB when full. A record is needed only until every member's last
// message to the communicator has come, which is soon after its close.
const tombstones = 1 << 14

// Tombstones remembers the extended ids of closed communicators, so that a late
// message to one is dropped and counted, while one for a communicator that does
// not exist here yet is kept.
//
// It is bounded: when it is full, the oldest record goes. A message to such a
// communicator that is still under way then looks like one for a communicator
// to come. It is kept, under the flow control that bounds all such messages,
// and is never delivered, because extended ids are not used twice. So a lost
// record costs memory up to that bound, never a wrong delivery; Forgotten says
// how many were lost.
//
// It is safe for concurrent use. The zero Tombstones is ready.
type Tombstones struct {
	mu        sync.Mutex
	limit     int
	has       map[Extended]struct{}
	ring      []Extended // in the order of Add; a ring once it is full
	oldest    int
	forgotten uint64
}

// NewTombstones returns an empty record of at most limit ids. Below 1 counts
// as 1.
func NewTombstones(limit int) *Tombstones { return &Tombstones{limit: max(limit, 1)} }

// Add records that id is closed. Adding it again does nothing.
func (t *Tombstones) Add(id Extended) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.has == nil {
		t.has = map[Extended]struct{}{}
		if t.limit == 0 {
			t.limit = tombstones
		}
	}
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
	t.forgotten++
}

// Has reports whether id is recorded as closed.
func (t *Tombstones) Has(id Extended) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.has[id]
	return ok
}

// Forgotten is how many records went because the limit was reached.
func (t *Tombstones) Forgotten() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.forgotten
}
