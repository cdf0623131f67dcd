package events

import (
	"encoding/binary"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/cid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestQueue_RevocationBeforeTheReceiver_IsDeliveredOnce(t *testing.T) {
	var running sync.WaitGroup
	q := Queue{Spawn: running.Go}
	var first, second []bootstrap.Event
	q.Add(bootstrap.Event{Kind: bootstrap.CommRevoked, Comm: cid.Extended{Base: 1}})
	q.Add(bootstrap.Event{Kind: bootstrap.CommBroken, Comm: cid.Extended{Base: 1}})
	q.Set(nil)
	q.Add(bootstrap.Event{Kind: bootstrap.CommRevoked, Comm: cid.Extended{Base: 2}})
	q.Set(func(e bootstrap.Event) { first = append(first, e) })
	running.Wait()
	if len(first) != 2 || first[0].Comm.Base != 1 || first[1].Comm.Base != 2 || first[0].Kind != bootstrap.CommRevoked {
		t.Errorf("the first receiver has %+v, want both revocations", first)
	}
	q.Set(func(e bootstrap.Event) { second = append(second, e) })
	running.Wait()
	if len(second) != 0 {
		t.Errorf("the second receiver has %+v, want nothing", second)
	}
}

func TestQueue_ReceiverReplaced_RevocationsInTheQueueStay(t *testing.T) {
	var running sync.WaitGroup
	q := Queue{Spawn: running.Go}
	enter, leave := make(chan struct{}), make(chan struct{})
	q.Set(func(bootstrap.Event) { close(enter); <-leave })
	q.Add(bootstrap.Event{Kind: bootstrap.Dump})
	<-enter
	q.Add(bootstrap.Event{Kind: bootstrap.Dump})
	q.Add(bootstrap.Event{Kind: bootstrap.CommRevoked})
	var got []bootstrap.Event
	q.Set(nil)
	q.Set(func(e bootstrap.Event) { got = append(got, e) })
	close(leave)
	running.Wait()
	if len(got) != 1 || got[0].Kind != bootstrap.CommRevoked {
		t.Errorf("the new receiver has %+v, want the revocation", got)
	}
}

// commOf returns the id of the i-th communicator.
func commOf(i int) (comm [16]byte) {
	binary.BigEndian.PutUint64(comm[:], uint64(i))
	return comm
}

func TestRevocations_ManyLoops_MemoryIsBounded(t *testing.T) {
	var r Revocations
	frame := make([]byte, 64)
	for i := range 5*mostRevocations + 1 {
		if r.IsKnown(commOf(i)) {
			t.Fatalf("revocation %d is known before", i)
		}
		r.Add(commOf(i), &Revocation{Frame: frame})
		for _, before := range []int{i, i - 1, i - mostRevocations} {
			if before >= 0 && !r.IsKnown(commOf(before)) {
				t.Fatalf("revocation %d is forgotten after %d newer ones", before, i-before)
			}
		}
	}
	if n := len(r.known) + len(r.knownBefore); len(r.Kept()) != mostRevocations || n > 2*mostRevocations || r.bytes != 64*mostRevocations {
		t.Errorf("%d kept with %d bytes, %d known", len(r.Kept()), r.bytes, n)
	}
}

func TestRevocations_LargeGroups_BytesAreBounded(t *testing.T) {
	var r Revocations
	for i := range 100 {
		v := &Revocation{Frame: make([]byte, mostRevokedBytes/64), Absent: make([]uint32, mostRevokedBytes/64/4)}
		r.Add(commOf(i), v)
		v.Absent = nil // The members have connected.
	}
	if len(r.Kept()) != 32 || r.bytes > mostRevokedBytes {
		t.Errorf("%d kept with %d bytes, want 32", len(r.Kept()), r.bytes)
	}
	if r.Add(commOf(100), &Revocation{Frame: make([]byte, 2*mostRevokedBytes)}); len(r.Kept()) != 1 || !r.IsKnown(commOf(0)) {
		t.Errorf("%d kept, want the newest alone", len(r.Kept()))
	}
}
