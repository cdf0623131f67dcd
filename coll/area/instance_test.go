package area

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/internal/mem"
	"github.com/ferrympi/ferry/internal/ring"
	"github.com/ferrympi/ferry/progress"
)

// fakeNode is a node whose members share one segment.
type fakeNode struct {
	bytes []byte
	fail  error
}

func (h *fakeNode) NewArea(size int) (*btl.Area, error) {
	h.bytes = ring.Aligned(size)
	return &btl.Area{Number: 7, Bytes: h.bytes, Hide: func() {}, Close: func() {}}, h.fail
}

func (h *fakeNode) OpenArea(_ int, number uint32, _ int) (*btl.Area, error) {
	if number != 7 {
		return nil, errors.New("there is no such area")
	}
	return &btl.Area{Number: number, Bytes: h.bytes, Hide: func() {}, Close: func() {}}, nil
}

func (h *fakeNode) Bell(int) (progress.RemoteBell, func(), error) {
	return progress.BellAt(ring.Aligned(progress.BellSize)), func() {}, nil
}

// pair opens a segment of two members.
func pair(t testing.TB) (*Layout, [2]*Instance, *fakeNode) {
	t.Helper()
	l := New(coll.Shape{Size: 2}, 1)
	all, h := openPair(t, l)
	return l, all, h
}

// openPair opens the instances of both members.
func openPair(t testing.TB, l *Layout) (all [2]*Instance, h *fakeNode) {
	t.Helper()
	h = new(fakeNode)
	var cards [][]byte
	for rank := range all {
		x, err := l.Open(coll.Env{Member: coll.Member{Rank: rank, Size: 2}, Node: h})
		if err != nil {
			t.Fatal(err)
		}
		all[rank] = x.(*Instance)
		cards = append(cards, x.Card())
	}
	for _, x := range all {
		if err := x.Join(cards); err != nil {
			t.Fatal(err)
		}
		x.Activate()
		t.Cleanup(x.Close)
	}
	return all, h
}

// operationRun is an operation of one member.
type operationRun struct {
	x    *Instance
	s    coll.Schedule
	call coll.Call
	next int
}

func newRun(l *Layout, x *Instance, turn uint32, plan func(w Steps)) *operationRun {
	p := &operationRun{x: x, call: coll.Call{Sequence: turn, Buffers: coll.Buffers{In: make([]byte, 64), Out: make([]byte, 64)}}}
	w := l.Begin(&p.s, coll.Member{Rank: x.localRank, Size: 2}, coll.Bcast, 0, 64)
	plan(w)
	w.End()
	return p
}

// run tries steps until one would block, and reports whether the operation is complete.
func (p *operationRun) run() (bool, error) {
	for ; p.next < len(p.s.Steps); p.next++ {
		if done, err := p.x.PollStep(&p.s.Steps[p.next], &p.call); !done {
			return false, err
		}
	}
	return true, nil
}

func expectDone(t *testing.T, p *operationRun, want bool) {
	t.Helper()
	if got, err := p.run(); got != want || err != nil {
		t.Fatalf("complete: %v, %v; want %v", got, err, want)
	}
}

func TestOperations_TwoAtOnce_RunInOrder(t *testing.T) {
	l, x, _ := pair(t)
	sender := func(w Steps) { w.Post(coll.Ref{}, 64) }
	receiver := func(w Steps) { w.Pass(); w.Fetch(0, 0, coll.Ref{Slot: coll.Out}, 64) }
	first, second := newRun(l, x[1], 1, receiver), newRun(l, x[1], 2, receiver)
	expectDone(t, first, false)
	expectDone(t, second, false)
	for turn := range uint32(2) {
		p := newRun(l, x[0], 1+turn, sender)
		p.call.In[0] = byte(1 + turn)
		expectDone(t, p, true)
	}
	expectDone(t, second, false)
	expectDone(t, first, true)
	expectDone(t, second, true)
	if first.call.Out[0] != 1 || second.call.Out[0] != 2 {
		t.Errorf("operations received %d and %d, want 1 and 2", first.call.Out[0], second.call.Out[0])
	}
}

func TestTry_BeginRepeated_QueuesOnce(t *testing.T) {
	l, x, _ := pair(t)
	var receivers []*operationRun
	for turn := range uint32(3) {
		receivers = append(receivers, newRun(l, x[1], 1+turn, func(w Steps) { w.Pass(); w.Fetch(0, 0, coll.Ref{Slot: coll.Out}, 64) }))
	}
	for range 2 {
		for _, p := range receivers {
			expectDone(t, p, false)
		}
	}
	for turn, receiver := range receivers {
		sender := newRun(l, x[0], 1+uint32(turn), func(w Steps) { w.Post(coll.Ref{}, 64) })
		sender.call.In[0] = byte(1 + turn)
		expectDone(t, sender, true)
		expectDone(t, receiver, true)
		if receiver.call.Out[0] != byte(1+turn) {
			t.Errorf("operation %d received the data of %d", 1+turn, receiver.call.Out[0])
		}
	}
}

func TestPost_SlowReader_IsNotOverwritten(t *testing.T) {
	l, x, _ := pair(t)
	const rounds = 5 * slots
	sender := newRun(l, x[0], 1, func(w Steps) {
		for i := range rounds {
			w.Post(coll.Ref{At: i}, 1)
		}
	})
	receiver := newRun(l, x[1], 1, func(w Steps) {
		for i := range rounds {
			w.Pass()
			w.Fetch(0, 0, coll.Ref{Slot: coll.Out, At: i}, 1)
		}
	})
	for i := range rounds {
		sender.call.In[i] = byte(i + 1)
	}
	ahead := 0
	for receiver.next < len(receiver.s.Steps) {
		if _, err := sender.run(); err != nil {
			t.Fatal(err)
		}
		if n := int(x[0].phase - x[1].phase); n > slots {
			t.Fatalf("writer is %d phases ahead", n)
		} else {
			ahead = max(ahead, n)
		}
		if did, err := x[1].PollStep(&receiver.s.Steps[receiver.next], &receiver.call); err != nil {
			t.Fatal(err)
		} else if did {
			receiver.next++
		} else if sender.next < len(sender.s.Steps) && x[0].phase == x[1].phase {
			t.Fatal("deadlock")
		}
	}
	for i := range rounds {
		if receiver.call.Out[i] != byte(i+1) {
			t.Fatalf("phase %d: %d", i, receiver.call.Out[i])
		}
	}
	if ahead < 3 {
		t.Errorf("writer is at most %d phases ahead, want 3", ahead)
	}
}

func TestFetch_ArgumentsDiffer_ReturnsError(t *testing.T) {
	for name, change := range map[string]func(p *operationRun){
		"size":      func(p *operationRun) { p.s.Steps[0].Buf.At = 8 },
		"root":      func(p *operationRun) { p.s.Steps[0].Peer = int32(operationCode(coll.Bcast, 1)) },
		"operation": func(p *operationRun) { p.s.Steps[0].Peer = 1<<31 - 1 },
		"data":      func(p *operationRun) { p.s.Steps[0].N = 8 },
	} {
		l, x, _ := pair(t)
		sender := newRun(l, x[0], 1, func(w Steps) { w.Post(coll.Ref{}, 64) })
		receiver := newRun(l, x[1], 1, func(w Steps) { w.Pass(); w.Fetch(0, 0, coll.Ref{Slot: coll.Out}, 64) })
		change(sender)
		expectDone(t, sender, true)
		if _, err := receiver.run(); err == nil {
			t.Errorf("%s: no error", name)
		} else if receiver.call.Out[0] != 0 {
			t.Errorf("%s: data was copied", name)
		}
	}
}

// The peer expects another root.
func TestFetch_PeerSkipsPost_ReturnsError(t *testing.T) {
	l, x, _ := pair(t)
	for _, p := range []*operationRun{newRun(l, x[0], 1, func(w Steps) { w.Pass() }), newRun(l, x[0], 2, func(w Steps) { w.Post(coll.Ref{}, 0) })} {
		expectDone(t, p, true)
	}
	receiver := newRun(l, x[1], 1, func(w Steps) { w.Pass(); w.Fetch(0, 0, coll.Ref{}, 0) })
	for range 2 * pollsBeforeCheck {
		if done, err := receiver.run(); done {
			t.Fatal("fetch completed without a post")
		} else if err != nil {
			return
		}
	}
	t.Error("fetch returned no error")
}

func TestOpen_NoSegment_ReturnsError(t *testing.T) {
	l := New(coll.Shape{Size: 2}, 1)
	if _, err := l.Open(coll.Env{Member: coll.Member{Size: 2}}); err == nil {
		t.Error("without a transport: no error")
	}
	if _, err := l.Open(coll.Env{Member: coll.Member{Size: 2}, Node: &fakeNode{fail: errors.New("there is no room")}}); err == nil {
		t.Error("without room: no error")
	}
	for _, card := range [][]byte{nil, {7}, {8, 0, 0, 0}, {7, 0, 0, 0, 0}} {
		x, err := l.Open(coll.Env{Member: coll.Member{Rank: 1, Size: 2}, Node: new(fakeNode)})
		if err == nil {
			err = x.Join([][]byte{card, nil})
		}
		if err == nil {
			t.Errorf("card %x: no error", card)
		}
		x.Close()
	}
}

// Invalid slots of a peer end in an error or a blocked step.
func FuzzLine(f *testing.F) {
	f.Add(make([]byte, lineSize))
	good := binary.LittleEndian.AppendUint32(nil, 1)
	good = binary.LittleEndian.AppendUint32(good, operationCode(coll.Bcast, 0))
	good = binary.LittleEndian.AppendUint64(good, 64)
	f.Add(binary.LittleEndian.AppendUint32(good, 64))
	f.Add(binary.LittleEndian.AppendUint32(good, 1<<32-1))
	l, _, h := pair(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		clear(h.bytes)
		x := &Instance{layout: l, ranks: []int{0, 1}, localRank: 1, writer: newStoreSelector()}
		x.mapBytes(h.bytes)
		for slot := range slots { // Of local rank 0.
			copy(h.bytes[slot*lineSize:][:lineSize], b)
		}
		p := newRun(l, x, 1, func(w Steps) {
			w.Post(coll.Ref{}, 64)
			w.AwaitAll()
			w.Fetch(0, 0, coll.Ref{Slot: coll.Out}, 64)
			for range slots {
				w.Pass()
			}
			w.Fill(0, 64, coll.Ref{}, 64)
			w.PostFilled(64)
		})
		if _, err := p.run(); err == nil && p.next < len(p.s.Steps) {
			_ = x.AwaitedRank(&p.s.Steps[p.next])
		}
	})
}

func TestLine_Size_IsACacheLine(t *testing.T) {
	if n := mem.Size[line](); n != lineSize {
		t.Errorf("line has %d bytes", n)
	}
}
