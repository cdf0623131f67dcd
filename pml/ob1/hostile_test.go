package ob1

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
	"github.com/ferrympi/ferry/progress"
)

// sink is a BTL that drops all frames. A test plays the peer by calls of Frame.
type sink struct{ last []byte }

func (s *sink) Poll() int { return 0 }
func (s *sink) Caps() btl.Caps {
	return btl.Caps{EagerLimit: 1024, FrameLimit: 4096, LatencyNS: 1, Device: "nowhere"}
}
func (s *sink) Blob() []byte                          { return []byte{} }
func (s *sink) Reach(framework.Peer) error            { return nil }
func (s *sink) Reserve(n int, _ btl.Placement) []byte { s.last = make([]byte, n); return s.last }
func (s *sink) Commit(n int)                          { s.last = s.last[:n] }
func (s *sink) Idle() bool                            { return true }

// Close of the endpoint and of the module differ in type, so they are two types.
type sinkModule struct{ *sink }

func (sinkModule) Close() error                                   { return nil }
func (m sinkModule) Connect(framework.Peer) (btl.Endpoint, error) { return sinkEndpoint(m), nil }

type sinkEndpoint struct{ *sink }

func (sinkEndpoint) Close() {}

type sinks struct{}

func (sinks) Open(_ framework.Kind, up func(string) any) ([]framework.Opened[any], error) {
	up("sink")
	return []framework.Opened[any]{{Name: "sink", Module: sinkModule{new(sink)}}}, nil
}

func (sinks) NotOpen(framework.Kind) []framework.Rejection { return nil }

// victim is rank 0 of three. It has posted receives, unexpected messages, RTSs in both
// directions, a pipeline in progress, a complete send, and early arrivals.
type victim struct {
	m      *Module
	engine *progress.Engine
	// The policies agree and lazy, and two endpoints of a third communicator.
	comms []*comm
	// peer is rank 1. Tests forge its frames.
	peer   *proc
	guards [][]byte
}

func newVictim(t testing.TB) *victim {
	t.Helper()
	v := &victim{engine: progress.New(progress.Options{})}
	params := Component().Params()
	framework.FillDefaults(params)
	module, err := Component().Open(context.Background(), pml.Env{
		Env: progress.Env{
			Identity: bootstrap.Identity{Proc: framework.Proc{Namespace: "victim"}, Size: 3},
			Worlds:   framework.NewWorlds("victim"),
			Self:     framework.Incarnation{Nonce: 1},
			Engine:   v.engine,
			Logger:   slog.New(slog.DiscardHandler),
		},
		Params:  params,
		Modules: sinks{},
	})
	if err != nil {
		t.Fatal(err)
	}
	v.m = module.(*Module)
	var group []pml.Member
	for id := range framework.ProcID(3) {
		group = append(group, pml.Member{Incarnation: framework.Incarnation{ID: id, Nonce: uint64(id) + 1}})
	}
	for _, member := range group[1:] {
		if err := v.m.Learn(member.Incarnation, framework.Card{{Component: "pml.ob1", Blob: encodeAddress(1 << 20)}, {Component: "btl.sink", Blob: []byte{}}}); err != nil {
			t.Fatal(err)
		}
	}
	members := pml.NewMembers(group)
	v.join(t, pml.CommSpec{ID: cid.Extended{Base: 1}, Agreed: true, Members: members})
	v.join(t, pml.CommSpec{ID: cid.Extended{Base: 2}, Members: members})
	// Ranks 0 and 1 are endpoints of this process, 2 and 3 of the peer.
	var endpoints []pml.Member
	for _, member := range group[:2] {
		for endpoint := range uint16(2) {
			endpoints = append(endpoints, pml.Member{Incarnation: member.Incarnation, Endpoint: endpoint})
		}
	}
	members = pml.NewMembers(endpoints)
	for rank := range 2 {
		elsewhere := pml.NewRankSet(4)
		elsewhere.Add(0)
		elsewhere.Add(1)
		v.join(t, pml.CommSpec{ID: withEndpoints, Members: members, Rank: rank, Elsewhere: elsewhere})
	}
	v.peer = v.m.transports[0].Accept(group[1].Incarnation).(*proc)
	c := v.comms[0]
	start := func(_ *pml.Request, err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	// Opens the path.
	if err := c.Send(context.Background(), v.buffer(10), 1, 1, pml.PointToPoint, pml.Standard); err != nil {
		t.Fatal(err)
	}
	start(c.Isend(v.buffer(10), 1, 1, pml.PointToPoint, pml.Standard))      // handle 0, second generation, complete
	start(c.Isend(v.buffer(100000), 1, 1, pml.PointToPoint, pml.Standard))  // handle 1, RTS sent
	start(c.Irecv(v.buffer(5000), 1, 1, pml.PointToPoint))                  // handle 2, in the pipeline, see below
	start(c.Irecv(v.buffer(50), 1, 2, pml.PointToPoint))                    // handle 3, posted
	start(c.Irecv(v.buffer(50), pml.AnySource, 3, pml.PointToPoint))        // handle 4, posted from any source
	start(c.Isend(v.buffer(20000), 2, 1, pml.PointToPoint, pml.Standard))   // handle 5, RTS sent to rank 2
	r, err := c.Isend(v.buffer(9), 1, 1, pml.PointToPoint, pml.Synchronous) // handle 6, withdrawing
	start(r, err)
	if err := r.Cancel(r.Generation()); err != nil {
		t.Fatal(err)
	}
	v.frame(t, v.rts(0, 1, 5000, 77))
	v.frame(t, v.rts(1, 9, 5000, 78))
	v.frame(t, v.eager(2, 9, []byte("unexpected")))
	return v
}

// withEndpoints is a communicator with two ranks each of the victim and the peer.
var withEndpoints = cid.Extended{Base: 3}

func (v *victim) join(t testing.TB, spec pml.CommSpec) {
	t.Helper()
	var err error
	if spec.Local, err = v.m.comms.Table.Reserve(); err != nil {
		t.Fatal(err)
	}
	c, err := v.m.AddComm(spec)
	if err != nil {
		t.Fatal(err)
	}
	v.comms = append(v.comms, c.(*comm))
}

// extended returns a message of a rank, from one endpoint to another.
func extended(id cid.Extended, to, from uint16, rank uint32, local cid.Local, seq uint32) []byte {
	b := make([]byte, matchSize+extendedSize+4)
	putHeader(b, frameMatch, header{flags: flagExtended, source: rank, seq: seq, to: to, from: from})
	putExtended(b[matchSize:], id, local)
	return b
}

// aboutIDs returns a frameCID or a frameClosed.
func aboutIDs(typ, flags byte, id cid.Extended, to, from uint16, rank int, local cid.Local) []byte {
	c := newMemberFrame(typ, memberFrame{flags: flags, to: cid.EndpointID{Extended: id, Endpoint: to}, from: from, rank: uint32(rank), local: local})
	return bytes.Clone(c.bytes[:c.size])
}

// buffer returns a buffer between guards.
func (v *victim) buffer(n int) pml.Buffer {
	whole := bytes.Repeat([]byte{0xee}, n+128)
	v.guards = append(v.guards, whole)
	return pml.Buffer{Bytes: whole[64 : 64+n]}
}

func (v *victim) frame(t testing.TB, f []byte) {
	t.Helper()
	if err := v.feed(f); err != nil {
		t.Fatal(err)
	}
}

// feed passes a frame to the module, and ends the path after an error, as a BTL does.
func (v *victim) feed(f []byte) error {
	v.engine.Lock()
	defer v.engine.Unlock()
	err := v.peer.Frame(f)
	if err != nil {
		v.m.transports[0].PathDown(v.peer.Incarnation, &framework.TransportError{Component: "test", Op: "receive", Err: err})
	}
	return err
}

func (v *victim) rts(seq uint32, tag int32, length int64, handle uint64) []byte {
	f := make([]byte, matchSize+rtsSize)
	putHeader(f, frameRTS, header{ctx: v.comms[0].Spec.Local, tag: tag, source: 1, seq: seq})
	putRTS(f[matchSize:], length, handle, 0, 0)
	return f
}

// part returns an RTS that announces a fragment of the claimed size.
func (v *victim) part(seq uint32, tag int32, length, claimed int64, payload []byte) []byte {
	f := v.rts(seq, tag, length, 79)
	putRTS(f[matchSize:], length, 79, claimed, 0)
	return append(f, payload...)
}

func (v *victim) eager(seq uint32, tag int32, payload []byte) []byte {
	f := make([]byte, matchSize, matchSize+len(payload))
	putHeader(f, frameMatch, header{ctx: v.comms[0].Spec.Local, tag: tag, source: 1, seq: seq})
	return append(f, payload...)
}

// check verifies that the guards are intact and that the module still works.
func (v *victim) check(t testing.TB) {
	t.Helper()
	for i, g := range v.guards {
		if !bytes.Equal(g[:64], bytes.Repeat([]byte{0xee}, 64)) || !bytes.Equal(g[len(g)-64:], g[:64]) {
			t.Fatalf("the guards of buffer %d were overwritten", i)
		}
	}
	if _, err := v.m.Inspect(t.Context()); err != nil {
		t.Error(err)
	}
	v.m.Stats()
}

func (v *victim) close(t testing.TB) {
	t.Helper()
	v.m.PeerChanged(framework.FailedEvent(v.comms[0].Spec.Members.Member(1).Incarnation, "test"))
	v.m.PeerChanged(framework.FailedEvent(v.comms[0].Spec.Members.Member(2).Incarnation, "test"))
	for _, c := range v.comms {
		for plane := range pml.Planes {
			c.Suspend(pml.Plane(plane), nil)
		}
		if c.Pending != 0 {
			t.Errorf("%d requests are pending although all peers have failed", c.Pending)
		}
		c.Close()
	}
	if err := v.m.Close(); err != nil {
		t.Error(err)
	}
	v.engine.Close()
}

// withHandle returns frames of all types that have a handle.
func withHandle(handle uint64) (all [][]byte) {
	for _, c := range []controlFrame{newCTS(handle, 1, 0), newCTS(handle, 1, 5), newCTS(handle, 1, math.MaxInt64), newCTS(handle, 1, -1),
		newWithdraw(frameWithdraw, handle), newWithdraw(frameWithdrawn, handle),
		newShare(share{handle, 0, 100000, btl.Remote{1}}), newShare(share{handle, -1, math.MaxInt64, btl.Remote{}}), newShare(share{handle, 5, 5, btl.Remote{31: 1}})} {
		all = append(all, bytes.Clone(c.bytes[:c.size]))
	}
	for _, offset := range []int64{0, 1, -1, 4999, 5000, math.MaxInt64} {
		f := make([]byte, dataSize+10)
		putData(f, handle, offset)
		all = append(all, f)
	}
	return all
}

// An attacker guesses handles of receives, of sends to other peers, and of complete requests.
func TestFrame_GuessedHandles_DoNoHarm(t *testing.T) {
	for slot := range uint64(9) {
		for turn := range uint64(3) {
			for i := range withHandle(0) {
				t.Run(fmt.Sprintf("%d.%d/%d", slot, turn, i), func(t *testing.T) {
					v := newVictim(t)
					defer v.close(t)
					err := v.feed(withHandle(turn<<32 | slot)[i])
					if err != nil && err.Error() == "" {
						t.Error("an error without text")
					}
					v.check(t)
					if to2 := v.m.requests[5]; to2.state != stateOffered {
						t.Errorf("a send to another process is %q", to2.state)
					}
				})
			}
		}
	}
}

// The fast path recognizes the sender of the last message by one comparison, but not after
// its communicator has closed.
func TestFrame_LastSenderOfClosedComm_IsDropped(t *testing.T) {
	v := newVictim(t)
	defer v.close(t)
	local, err := v.m.comms.Table.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	c, err := v.m.AddComm(pml.CommSpec{ID: cid.Extended{Base: 4}, Local: local, Agreed: true, Members: v.comms[0].Spec.Members})
	if err != nil {
		t.Fatal(err)
	}
	v.engine.Lock()
	c.(*comm).peer(1)
	v.engine.Unlock()
	message := func(seq uint32) []byte {
		f := make([]byte, matchSize)
		putHeader(f, frameMatch, header{ctx: local, tag: 1, source: 1, seq: seq})
		return f
	}
	v.frame(t, message(0))
	if v.peer.lastPeer == nil || v.peer.lastPeer.c != c {
		t.Fatal("the sender is not remembered: the test tests nothing")
	}
	c.Close()
	before := v.peer.Stats.Dropped
	// Its sequence number is wrong as well.
	v.frame(t, message(7))
	if v.peer.Stats.Dropped != before+1 {
		t.Errorf("%d messages were dropped, want one", v.peer.Stats.Dropped-before)
	}
}

// The announced length must be that of the payload, and at most that of the message.
func TestRTS_FragmentOfOtherLength_EndsPath(t *testing.T) {
	for _, c := range []struct {
		length, claimed int64
		follows         int
		ok              bool
	}{
		{5000, 100, 100, true}, {100, 100, 100, true}, {0, 0, 0, true},
		{5000, 100, 99, false}, {5000, 99, 100, false}, {50, 100, 100, false},
		{5000, -1, 100, false}, {5000, 0, 1, false}, {-1, 0, 0, false},
	} {
		// The first is posted with 50 bytes, the second is unexpected.
		for _, tag := range []int32{2, 9} {
			v := newVictim(t)
			err := v.feed(v.part(3, tag, c.length, c.claimed, make([]byte, c.follows)))
			if (err == nil) != c.ok {
				t.Errorf("RTS of %d bytes with a part of %d in %d: %v", c.length, c.claimed, c.follows, err)
			}
			v.check(t)
			v.close(t)
		}
	}
}

// FuzzFrame passes up to three arbitrary frames of one peer to a module with requests in all states.
func FuzzFrame(f *testing.F) {
	seed := &victim{comms: []*comm{{Comm: base.Comm[*proc]{State: base.State{Spec: pml.CommSpec{Local: cid.MakeLocal(1, 1)}}}}}}
	f.Add(seed.eager(3, 2, []byte("hello")), seed.eager(4, 3, nil), seed.rts(5, 4, 100, 9))
	f.Add(seed.part(3, 2, 300, 100, make([]byte, 100)), seed.part(4, 9, 300, 100, make([]byte, 100)), seed.part(5, 9, 50, 100, make([]byte, 100)))
	f.Add(seed.rts(3, 2, math.MaxInt64, 9), seed.rts(4, 3, -1, 9), seed.rts(5, 3, 0, 9))
	for slot := range uint64(8) {
		frames := withHandle(slot)
		for i := 0; i+2 < len(frames); i += 3 {
			f.Add(frames[i], frames[i+1], frames[i+2])
		}
	}
	f.Add(extended(cid.Extended{Base: 2}, 0, 0, 1, 1<<20|5, 0), extended(cid.Extended{Base: 2}, 0, 0, 1, 1<<20|6, 1), extended(cid.Extended{Base: 9}, 0, 0, 1, 1<<20|6, 1))
	for _, e := range [][2]uint16{{0, 0}, {1, 1}, {1, 0}, {9, 1}, {0, 9}} {
		rank := 2 + int(e[1])
		f.Add(extended(withEndpoints, e[0], e[1], uint32(rank), 1<<20|5, 0),
			aboutIDs(frameCID, cidInquiry, withEndpoints, e[0], e[1], rank, 1<<20|5),
			aboutIDs(frameClosed, closedReply|closedRefused, withEndpoints, e[0], e[1], rank, 1<<20|5))
	}
	for _, typ := range []byte{frameCID, frameClosed} {
		for _, id := range []uint64{1, 2, 9} {
			about := aboutIDs(typ, 0, cid.Extended{Base: id}, 0, 0, 1, 1<<20|5)
			f.Add(about, bytes.Clone(about), seed.eager(3, 2, nil))
		}
	}
	for _, n := range []int64{0, 1, -1, math.MaxInt64} {
		c := newCredit(n)
		f.Add(bytes.Clone(c.bytes[:c.size]), bytes.Clone(c.bytes[:c.size-1]), []byte{200})
	}
	f.Fuzz(func(t *testing.T, a, b, c []byte) {
		v := newVictim(t)
		defer v.close(t)
		for _, frame := range [][]byte{a, b, c} {
			err := v.feed(frame)
			v.check(t)
			if err != nil {
				return
			}
		}
	})
}
