package base

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/progress"
)

var errGone = errors.New("gone")

// fakeModule is a module over an endpoint that holds operations until the test completes them.
type fakeModule struct {
	Module
	peers []Peer
	slots []*fakeSlot
	held  []*fakeSlot
	grows int
}

type fakeSlot struct{ Slot }

func newFakeModule() *fakeModule {
	m := &fakeModule{Module: NewModule("mtl fake", mtl.Env{Env: progress.Env{Worlds: framework.NewWorlds("job")}})}
	m.Capabilities.Eager = 100
	m.peers = []Peer{m.NoPeer()}
	return m
}

func (m *fakeModule) connect(rank uint32) mtl.Endpoint {
	i := framework.Incarnation{ID: framework.MakeProcID(0, rank), Nonce: uint64(rank) + 1}
	to := mtl.Endpoint(len(m.peers))
	m.peers = append(m.peers, m.AddPeer(i, to))
	return to
}

func (m *fakeModule) start(k SlotKind, op *mtl.Op, peer mtl.Endpoint, buf []byte) *fakeSlot {
	if m.SlotPool.IsEmpty() {
		m.slots = AddSlots(&m.Module, m.slots, 3, func(s *fakeSlot) *Slot { return &s.Slot })
		m.grows++
	}
	s := m.slots[m.SlotPool.Next()]
	m.SlotPool.Take(&s.Slot, k, op)
	if s.Peer, s.IsPosted = peer, true; k == SlotReceive {
		s.SetReceiveBuffer(buf)
	} else {
		s.Pin(buf)
	}
	m.held = append(m.held, s)
	return s
}

// complete completes an operation that the endpoint holds. A receive gets a message of its length.
func (m *fakeModule) complete(i int) {
	s := m.held[i]
	m.held = append(m.held[:i], m.held[i+1:]...)
	if s.Kind == SlotReceive {
		for i := range s.Buf {
			s.Buf[i] = 7
		}
		s.CopyBounced(int64(len(s.Buf)))
	}
	op := s.Op
	m.SlotPool.Release(&s.Slot)
	Notify(op, mtl.Result{Tag: 5})
}

func (m *fakeModule) forget(to mtl.Endpoint) {
	if !m.ForgetPeer(&m.peers[to], errGone) {
		return
	}
	for _, s := range m.slots {
		if s.Peer == to && s.Kind.IsSend() {
			m.Abandon(&s.Slot, m.peers[to].SendErr)
		}
	}
}

type fakeOp struct {
	mtl.Op
	completions int
	onDone      func()
}

func (o *fakeOp) Done(*mtl.Op) {
	if o.completions++; o.onDone != nil {
		o.onDone()
	}
}

func newFakeOp() *fakeOp {
	o := new(fakeOp)
	o.Owner = o
	return o
}

// Random operations, completions and failures of peers. Each operation completes once, slots are used by one operation at a time, and the
// module is idle exactly if it has no send and no result.
func TestModule_RandomOperations_CompleteOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	m := newFakeModule()
	var ops []*fakeOp
	sends := map[*fakeOp]mtl.Endpoint{} // Without Done.
	idle := map[bool]int{}
	for range 5000 {
		switch rng.IntN(8) {
		case 0, 1:
			to := mtl.Endpoint(rng.IntN(len(m.peers)))
			if m.peers[to].SendErr != nil {
				to = m.connect(uint32(len(m.peers)))
			}
			o := newFakeOp()
			o.onDone = func() { delete(sends, o) }
			ops, sends[o] = append(ops, o), to
			m.start(SlotSend, &o.Op, to, make([]byte, rng.IntN(200)))
		case 2:
			o, buf := newFakeOp(), make([]byte, rng.IntN(2*MaxBounced))
			o.onDone = func() {
				if len(buf) > 0 && (buf[0] != 7 || buf[len(buf)-1] != 7) {
					t.Errorf("a receive of %d bytes has other contents", len(buf))
				}
			}
			ops = append(ops, o)
			m.start(SlotReceive, &o.Op, mtl.NoEndpoint, buf)
		case 3, 4, 5:
			if len(m.held) > 0 {
				m.complete(rng.IntN(len(m.held)))
			}
		case 6:
			m.forget(mtl.Endpoint(rng.IntN(len(m.peers))))
		default:
			m.Results.Deliver()
		}
		for _, s := range m.held {
			if s.Op != nil && s.Op.Slot != s.Number {
				t.Fatal("an operation has the slot of another one")
			}
		}
		isIdle := m.IdleAfter(func(mtl.Endpoint) {})
		if idle[isIdle]++; isIdle != (len(sends) == 0) {
			t.Fatalf("idle: %v with %d sends", isIdle, len(sends))
		}
	}
	if idle[true] < 100 || idle[false] < 100 {
		t.Errorf("the module was idle %d times, and not idle %d times", idle[true], idle[false])
	}
	for len(m.held) > 0 {
		m.complete(0)
	}
	m.Results.Deliver()
	for i, o := range ops {
		if o.completions != 1 {
			t.Fatalf("operation %d has completed %d times", i, o.completions)
		}
	}
	if len(m.slots) != 3*m.grows || len(m.SlotPool.freeNumbers) != len(m.slots) {
		t.Errorf("%d slots, and %d unused", len(m.slots), len(m.SlotPool.freeNumbers))
	}
	m.EndClose()
}

func TestSlotPool_NewSlots_LowestFirst(t *testing.T) {
	m := newFakeModule()
	for want := range uint32(7) {
		if s := m.start(SlotFlush, nil, mtl.NoEndpoint, nil); s.Number != want || m.slots[want] != s {
			t.Errorf("slot %d is taken instead of %d", s.Number, want)
		}
	}
	m.EndClose()
}

func TestDeliver_OwnerStartsAnother_IsDeliveredLater(t *testing.T) {
	m := newFakeModule()
	var order []int
	second, third := newFakeOp(), newFakeOp()
	second.onDone = func() { order = append(order, 2) }
	third.onDone = func() { order = append(order, 3) }
	first := newFakeOp()
	first.onDone = func() {
		order = append(order, 1)
		m.QueueResult(&third.Op, mtl.Result{Bytes: 3})
	}
	m.QueueResult(&first.Op, mtl.Result{})
	m.QueueResult(&second.Op, mtl.Result{Err: errGone})
	m.QueueResult(nil, mtl.Result{})
	if n := m.Results.Deliver(); n != 2 || len(order) != 2 || order[0] != 1 || second.Err != errGone {
		t.Errorf("%d results delivered: %v, %v", n, order, second.Err)
	}
	if n := m.Results.Deliver(); n != 1 || third.Bytes != 3 || !m.Results.IsEmpty() {
		t.Errorf("%d results delivered: %v", n, order)
	}
}

func TestIdle_UnflushedPeers_AreFlushedOnce(t *testing.T) {
	m := newFakeModule()
	a, b := m.connect(0), m.connect(1)
	for _, to := range []mtl.Endpoint{a, b, a} {
		m.MarkUnflushed(&m.peers[to], to)
	}
	var flushed []mtl.Endpoint
	flush := func(to mtl.Endpoint) {
		m.peers[to].MarkFlushed()
		flushed = append(flushed, to)
		m.start(SlotFlush, nil, to, nil)
	}
	if m.IdleAfter(flush) || len(flushed) != 2 {
		t.Errorf("idle, or flushed %v", flushed)
	}
	m.complete(0)
	m.complete(0)
	if !m.IdleAfter(flush) || len(flushed) != 2 {
		t.Errorf("not idle, or flushed %v", flushed)
	}
	m.MarkUnflushed(&m.peers[a], a)
	if m.Err = errGone; !m.IdleAfter(flush) || len(flushed) != 2 {
		t.Errorf("a failed module is not idle, or flushed %v", flushed)
	}
	m.EndClose()
}

func TestForgetPeer_Incarnation_MayConnectAgain(t *testing.T) {
	m := newFakeModule()
	a := m.connect(4)
	p := &m.peers[a]
	if !m.ForgetPeer(p, errGone) || m.ForgetPeer(p, nil) || m.ForgetPeer(&m.peers[mtl.NoEndpoint], errGone) {
		t.Error("a peer is not forgotten once, or that of NoEndpoint is")
	}
	if e := new(framework.TransportError); !errors.Is(p.SendErr, errGone) || !errors.As(p.SendErr, &e) || e.Peer == "" || e.Component != "mtl fake" {
		t.Errorf("%v", p.SendErr)
	}
	if _, ok := m.Endpoints[p.Incarnation]; ok {
		t.Error("the incarnation is still connected")
	}
	if b := m.connect(4); b == a || m.Endpoints[m.peers[b].Incarnation] != b {
		t.Error("the incarnation has no new endpoint")
	}
}

func TestCheckSource_UnknownEndpoint_IsRefused(t *testing.T) {
	m := newFakeModule()
	a := m.connect(0)
	for _, c := range []struct {
		from   mtl.Endpoint
		source int32
		want   mtl.Endpoint
		ok     bool
	}{{a, 0, a, true}, {a, mtl.AnySource, mtl.NoEndpoint, true}, {9, mtl.AnySource, mtl.NoEndpoint, true}, {9, 0, 0, false}, {mtl.NoEndpoint, 0, 0, false}} {
		got, err := m.CheckSource(c.from, mtl.Envelope{Source: c.source}, len(m.peers))
		if got != c.want || (err == nil) != c.ok || err != nil && !errors.Is(err, framework.ErrUnsupported) {
			t.Errorf("%+v: %d, %v", c, got, err)
		}
	}
	m.EndClose()
	if _, err := m.CheckSource(a, mtl.Envelope{}, len(m.peers)); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("a closed module: %v", err)
	}
}

// A message up to Eager is complete.
func TestLostClaim_SenderIsGone_LongMessageIsLost(t *testing.T) {
	m := newFakeModule()
	a := m.connect(0)
	if err := m.LostClaim(&m.peers[a], 101); err != nil {
		t.Errorf("the sender is alive: %v", err)
	}
	m.forget(a)
	if err := m.LostClaim(&m.peers[a], 100); err != nil {
		t.Errorf("a short message: %v", err)
	}
	if err := m.LostClaim(&m.peers[a], 101); !errors.Is(err, errGone) || !strings.Contains(err.Error(), "101 bytes") {
		t.Errorf("a long message: %v", err)
	}
	if err := m.LostClaim(&m.peers[mtl.NoEndpoint], 101); err == nil || !strings.Contains(err.Error(), "left the communicator") {
		t.Errorf("a former member: %v", err)
	}
}
