package threads

import (
	"bytes"
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

const p2p = pml.PointToPoint

// openTeam returns a team of n ranks and their handles of one communicator.
func openTeam(t *testing.T, n int) (*Team, []*comm) {
	t.Helper()
	e := progress.New(progress.Options{})
	t.Cleanup(e.Close)
	p := new(Params)
	framework.FillDefaults(p)
	self := framework.Incarnation{ID: 1, Nonce: 1}
	team := NewTeam(self, e, n, *p)
	t.Cleanup(func() {
		if !team.Rank(0).engine.IsClosed() { // the test may close it
			team.Close()
		}
	})
	group := make([]pml.Member, n)
	for rank := range group {
		group[rank] = pml.Member{Incarnation: self, Endpoint: uint16(rank)}
	}
	members := pml.NewMembers(group)
	comms := make([]*comm, n)
	for rank := range comms {
		c, err := team.Rank(rank).AddComm(pml.CommSpec{ID: cid.Extended{Base: 1}, Members: members, Rank: rank})
		if err != nil {
			t.Fatal(err)
		}
		comms[rank] = c.(*comm)
	}
	return team, comms
}

// claim claims the next cell of a ring, as a producer does that is preempted before it has
// published the cell. The returned function publishes an inline message.
func (q *ring) claim(comm uint64, source, tag int32) (publish func()) {
	pos := q.tail.Add(1) - 1
	return func() {
		c := &q.cells[pos%ringCells]
		c.teamCommID, c.source, c.tag = comm, source, tag
		atomic.StoreUint64(&c.word, lap(pos)<<32|uint64(makeHeader(kindInline, 0, 0)))
	}
}

// deadline bounds what a test waits for if it fails.
func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestDeliver_OfferBehindOtherCells_IsDelivered has a receiver without calls after its Irecv. The senders of the other
// cells do not deliver.
func TestDeliver_OfferBehindOtherCells_IsDelivered(t *testing.T) {
	team, comms := openTeam(t, 2)
	ctx, receiver, id := deadline(t), team.Rank(1), comms[1].shared.teamCommID
	for _, other := range []struct {
		name string
		put  func() (publish func())
	}{
		{"a claimed cell", func() func() { return receiver.claim(id, 0, 1) }},
		{"a full ring", func() func() {
			for receiver.put(makeHeader(kindInline, 0, 0), id, 0, 1, nil, nil) {
			}
			return func() {}
		}},
	} {
		sent, got := bytes.Repeat([]byte{7}, 100_000), make([]byte, 100_000)
		if _, err := comms[1].Irecv(pml.Buffer{Bytes: got}, 0, 5, p2p); err != nil {
			t.Fatal(err)
		}
		publish := other.put()
		r, err := comms[0].Isend(pml.Buffer{Bytes: sent}, 1, 5, p2p, pml.Standard)
		if err != nil {
			t.Fatal(err)
		}
		generation := r.Generation()
		publish()
		if _, err := r.Wait(ctx, generation); err != nil {
			t.Fatalf("behind %s: %v", other.name, err)
		}
		if !bytes.Equal(got, sent) {
			t.Errorf("behind %s: not what was sent", other.name)
		}
	}
}

// TestPoll_LockOfPostponedRankIsBusy_KeepsItOnceAndRingsNoBell checks that the progress goroutine retries after Due. A
// wake-up would make it retry in a loop.
func TestPoll_LockOfPostponedRankIsBusy_KeepsItOnceAndRingsNoBell(t *testing.T) {
	team, _ := openTeam(t, 1)
	r, process := team.Rank(0), team.processEngine
	process.Lock()
	for !process.Bell().Armed() { // until the progress goroutine sleeps
		process.Unlock()
		runtime.Gosched()
		process.Lock()
	}
	defer process.Unlock()
	r.engine.Lock()
	for range 3 {
		team.queuePostponed(r)
		if n := team.Poll(); n != 0 || len(team.postponedRanks) != 1 || team.Due() == 0 {
			t.Errorf("%d events, %d postponed ranks, due %v", n, len(team.postponedRanks), team.Due())
		}
	}
	if !process.Bell().Armed() {
		t.Error("the bell was rung")
	}
	r.engine.Unlock()
	if team.Poll(); len(team.postponedRanks) != 0 || team.Due() != 0 {
		t.Errorf("%d postponed ranks, due %v", len(team.postponedRanks), team.Due())
	}
}

// refill is a notifier that receives again and sends another message to its own rank.
type refill struct {
	t    *testing.T
	c    *comm
	left int
}

func (f *refill) start() {
	f.c.StartRecv(pml.Buffer{}, 0, 1, p2p).Notify(f)
	s, err := f.c.StartSend(pml.Buffer{}, 0, 1, p2p, pml.Standard)
	if err != nil {
		f.t.Error(err)
	}
	_, _, _ = s.Take(s.Generation())
}

func (f *refill) Completed(r *pml.Request) {
	_, _, _ = r.Take(r.Generation())
	if f.left--; f.left > 0 {
		f.start()
	}
}

// TestDrain_ProducersFillTheRingMeanwhile_Ends adds a cell after each one that is consumed.
func TestDrain_ProducersFillTheRingMeanwhile_Ends(t *testing.T) {
	team, comms := openTeam(t, 1)
	r := team.Rank(0)
	const messages = 100 * ringCells
	for name, drain := range map[string]func() int{"drain": r.drain, "drainAll": r.drainAll, "Poll": r.Poll} {
		f := &refill{t: t, c: comms[0], left: messages}
		r.engine.Lock()
		f.start()
		if n := drain(); n == 0 || n > ringCells {
			t.Errorf("%s has taken %d cells, want 1 to %d", name, n, ringCells)
		}
		r.engine.Release() // delivers the rest
		if f.left != 0 {
			t.Errorf("%s: %d messages are left", name, f.left)
		}
	}
}
