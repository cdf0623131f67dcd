package threads

import (
	"encoding/binary"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// testRing is a ring with the consumer's side of Rank.drain.
type testRing struct{ ring }

func newTestRing() *testRing {
	q := new(testRing)
	q.init()
	return q
}

// send puts a cell, or spills it: message number seq of a producer.
func (q *testRing) send(producer int32, seq int32, large *message) {
	var payload [8]byte
	binary.LittleEndian.PutUint64(payload[:], uint64(producer)<<32|uint64(seq))
	h := makeHeader(kindInline, 0, len(payload))
	if large != nil {
		h = makeHeader(kindEager, 0, 0)
	}
	if !q.put(h, 0, producer, seq, payload[:], large) {
		q.spill(h, 0, producer, seq, payload[:], large)
	}
}

// receive calls f for the messages that are here, at most most, and the overflow list as a whole.
func (q *testRing) receive(most int, f func(c *cell, large *message)) (n int) {
	for n < most {
		if c := q.peek(); c != nil {
			var large *message
			if c.header().kind() != kindInline {
				large = q.pointer()
			}
			f(c, large)
			q.advance()
			n++
			continue
		}
		list := q.takeSpilled()
		if list == nil {
			break
		}
		for i := range list {
			f(&list[i].cell, list[i].large)
		}
		n += len(list)
		q.recycle(list)
	}
	q.release()
	return n
}

// TestRing_AnyInterleaving_KeepsTheOrderOfEachProducer compares a ring with a queue for each
// producer. Claims are interleaved with the stores that publish their cells, as if producers
// were preempted in between.
func TestRing_AnyInterleaving_KeepsTheOrderOfEachProducer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := newTestRing()
		const producers = 3
		var sent, received [producers]int32
		check := func(c *cell, large *message) {
			p := c.source
			if c.tag != received[p] {
				t.Fatalf("producer %d: message %d, want %d", p, c.tag, received[p])
			}
			if want := p == 2; (large != nil) != want {
				t.Fatalf("producer %d: pointer %v", p, large)
			}
			if large == nil && binary.LittleEndian.Uint64(c.payload[:]) != uint64(p)<<32|uint64(c.tag) {
				t.Fatalf("producer %d: payload %x", p, c.payload[:8])
			}
			received[p]++
		}
		t.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				p := rapid.Int32Range(0, producers-1).Draw(t, "producer")
				for range rapid.IntRange(1, 2*ringCells).Draw(t, "messages") {
					var large *message
					if p == 2 {
						large = new(message)
					}
					q.send(p, sent[p], large)
					sent[p]++
				}
			},
			"receive": func(t *rapid.T) {
				q.receive(rapid.IntRange(1, 100).Draw(t, "most"), check)
			},
			"claimed": func(t *rapid.T) {
				// A producer that has claimed a cell and is preempted keeps back what follows.
				pos := q.tail.Load()
				if q.isSpilling.Load() != 0 || pos >= q.claimLimit.Load() && !q.refill(pos) {
					return
				}
				q.tail.Store(pos + 1)
				before := received
				for range rapid.IntRange(0, 2*ringCells).Draw(t, "messages of others") {
					q.send(1, sent[1], nil)
					sent[1]++
				}
				for q.receive(1000, check) > 0 {
				}
				if received[1]-before[1] > int32(ringCells) || !q.hasCells() {
					t.Fatalf("the consumer passed a cell that is not published")
				}
				c := &q.cells[pos%ringCells]
				c.source, c.tag = 0, sent[0]
				binary.LittleEndian.PutUint64(c.payload[:], uint64(sent[0]))
				sent[0]++
				atomic.StoreUint64(&c.word, lap(pos)<<32|uint64(makeHeader(kindInline, 0, 8)))
			},
			"": func(t *rapid.T) {
				waiting := false
				for p := range producers {
					waiting = waiting || sent[p] != received[p]
				}
				if q.hasCells() != waiting {
					t.Fatalf("hasCells is %t, sent %v, received %v", q.hasCells(), sent, received)
				}
			},
		})
		for q.receive(1000, check) > 0 {
		}
		if sent != received {
			t.Fatalf("sent %v, received %v", sent, received)
		}
		for _, p := range q.cellMessages {
			if p != nil {
				t.Fatal("the ring keeps a pointer")
			}
		}
	})
}

// TestRing_ManyProducers_OneConsumerAtATime runs goroutines that fill the ring beyond its
// end, and consumers that take turns.
func TestRing_ManyProducers_OneConsumerAtATime(t *testing.T) {
	const producers, consumers, messages = 8, 3, 5000
	q := newTestRing()
	var lock sync.Mutex
	var received [producers]int32
	var left atomic.Int64
	left.Store(producers * messages)
	var wg sync.WaitGroup
	for p := range int32(producers) {
		wg.Go(func() {
			for seq := range int32(messages) {
				var large *message
				if seq%5 == 0 {
					large = new(message)
				}
				q.send(p, seq, large)
				if seq%100 == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	for range consumers {
		wg.Go(func() {
			for left.Load() > 0 {
				lock.Lock()
				n := q.receive(50, func(c *cell, large *message) {
					p := c.source
					if c.tag != received[p] {
						t.Errorf("producer %d: message %d, want %d", p, c.tag, received[p])
					}
					if (large != nil) != (c.tag%5 == 0) || large == nil && binary.LittleEndian.Uint64(c.payload[:]) != uint64(p)<<32|uint64(c.tag) {
						t.Errorf("producer %d, message %d: pointer %v, payload %x", p, c.tag, large, c.payload[:8])
					}
					received[p] = c.tag + 1
				})
				lock.Unlock()
				if left.Add(int64(-n)); n == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	wg.Wait()
	if q.hasCells() {
		t.Error("the ring is not empty")
	}
}

// TestRing_ConsumerStopsPolling_MissesNoCell is the protocol of needsDelivery. The consumer sets a
// word and polls the ring once more; a producer publishes a cell and reads the word.
func TestRing_ConsumerStopsPolling_MissesNoCell(t *testing.T) {
	const rounds = 20000
	for round := range rounds {
		q := newTestRing()
		var word atomic.Uint32
		told := make(chan bool)
		go func() {
			q.send(0, 0, nil)
			told <- word.Load() != 0
		}()
		runtime.Gosched()
		word.Store(1)
		n := 0
		for q.hasCells() {
			n += q.receive(1, func(*cell, *message) {})
			runtime.Gosched()
		}
		if !<-told && n == 0 {
			t.Fatalf("round %d: neither side saw the other", round)
		}
	}
}
