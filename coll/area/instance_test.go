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

// heap is a node of which all members have the same area.
type heap struct {
	bytes []byte
	fail  error
}

func (h *heap) NewArea(size int) (*btl.Area, error) {
	h.bytes = ring.Aligned(size)
	return &btl.Area{Number: 7, Bytes: h.bytes, Hide: func() {}, Close: func() {}}, h.fail
}

func (h *heap) OpenArea(_ int, number uint32, _ int) (*btl.Area, error) {
	if number != 7 {
		return nil, errors.New("there is no such area")
	}
	return &btl.Area{Number: number, Bytes: h.bytes, Hide: func() {}, Close: func() {}}, nil
}

func (h *heap) Bell(int) (progress.RemoteBell, func(), error) {
	return progress.BellAt(ring.Aligned(progress.BellSize)), func() {}, nil
}

// pair opens an area of two members.
func pair(t testing.TB) (*Layout, [2]*Instance, *heap) {
	t.Helper()
	l := New(coll.Shape{Size: 2}, 1)
	all, h := opened(t, l)
	return l, all, h
}

// opened opens the two parts of an area.
func opened(t testing.TB, l *Layout) (all [2]*Instance, h *heap) {
	t.Helper()
	h = new(heap)
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
		x.Agreed()
		t.Cleanup(x.Close)
	}
	return all, h
}

// part is one member's part in an operation, which goes on as far as it can.
type part struct {
	x    *Instance
	s    coll.Schedule
	call coll.Call
	next int
}

func newPart(l *Layout, x *Instance, turn uint32, plan func(w Steps)) *part {
	p := &part{x: x, call: coll.Call{Turn: turn, Buffers: coll.Buffers{In: make([]byte, 64), Out: make([]byte, 64)}}}
	w := l.In(&p.s, coll.Member{Rank: x.seat, Size: 2}, coll.Bcast, 0, 64)
	plan(w)
	w.Leave()
	return p
}

// run goes on, and reports whether the part is over.
func (p *part) run() (bool, error) {
	for ; p.next < len(p.s.Steps); p.next++ {
		if over, err := p.x.Try(&p.s.Steps[p.next], &p.call); !over {
			return false, err
		}
	}
	return true, nil
}

func over(t *testing.T, p *part, want bool) {
	t.Helper()
	if got, err := p.run(); got != want || err != nil {
		t.Fatalf("over: %v, %v; want %v", got, err, want)
	}
}

// TestOperationsDoNotMix: several are under way, and one that began later waits.
func TestOperationsDoNotMix(t *testing.T) {
	l, x, _ := pair(t)
	give := func(w Steps) { w.Post(coll.Ref{}, 64) }
	take := func(w Steps) { w.Pass(); w.Fetch(0, 0, coll.Ref{Slot: coll.Out}, 64) }
	first, second := newPart(l, x[1], 1, take), newPart(l, x[1], 2, take)
	over(t, first, false)
	over(t, second, false)
	for turn := range uint32(2) {
		p := newPart(l, x[0], 1+turn, give)
		p.call.In[0] = byte(1 + turn)
		over(t, p, true)
	}
	over(t, second, false)
	over(t, first, true)
	over(t, second, true)
	if first.call.Out[0] != 1 || second.call.Out[0] != 2 {
		t.Errorf("they got %d and %d", first.call.Out[0], second.call.Out[0])
	}
}

// TestOperationThatWaitsBeginsOnce however often it is tried, also with others behind it.
func TestOperationThatWaitsBeginsOnce(t *testing.T) {
	l, x, _ := pair(t)
	var takes []*part
	for turn := range uint32(3) {
		takes = append(takes, newPart(l, x[1], 1+turn, func(w Steps) { w.Pass(); w.Fetch(0, 0, coll.Ref{Slot: coll.Out}, 64) }))
	}
	for range 2 {
		for _, p := range takes {
			over(t, p, false)
		}
	}
	for turn, take := range takes {
		give := newPart(l, x[0], 1+uint32(turn), func(w Steps) { w.Post(coll.Ref{}, 64) })
		give.call.In[0] = byte(1 + turn)
		over(t, give, true)
		over(t, take, true)
		if take.call.Out[0] != byte(1+turn) {
			t.Errorf("operation %d got what is of %d", 1+turn, take.call.Out[0])
		}
	}
}

// TestNobodyOverwritesWhatIsNotRead: a member that gives is ahead of one that sleeps by as
// much as its slots hold, and goes on when it has read.
func TestNobodyOverwritesWhatIsNotRead(t *testing.T) {
	l, x, _ := pair(t)
	const rounds = 5 * slots
	give := newPart(l, x[0], 1, func(w Steps) {
		for i := range rounds {
			w.Post(coll.Ref{At: i}, 1)
		}
	})
	take := newPart(l, x[1], 1, func(w Steps) {
		for i := range rounds {
			w.Pass()
			w.Fetch(0, 0, coll.Ref{Slot: coll.Out, At: i}, 1)
		}
	})
	for i := range rounds {
		give.call.In[i] = byte(i + 1)
	}
	ahead := 0
	for take.next < len(take.s.Steps) {
		if _, err := give.run(); err != nil {
			t.Fatal(err)
		}
		if n := int(x[0].round - x[1].round); n > slots {
			t.Fatalf("it is %d rounds ahead", n)
		} else {
			ahead = max(ahead, n)
		}
		if did, err := x[1].Try(&take.s.Steps[take.next], &take.call); err != nil {
			t.Fatal(err)
		} else if did {
			take.next++
		} else if give.next < len(give.s.Steps) && x[0].round == x[1].round {
			t.Fatal("both wait for each other")
		}
	}
	for i := range rounds {
		if take.call.Out[i] != byte(i+1) {
			t.Fatalf("round %d: %d", i, take.call.Out[i])
		}
	}
	if ahead < 3 {
		t.Errorf("it is at most %d rounds ahead", ahead)
	}
}

// TestMemberThatDiffersIsNamed, before what it gives is taken.
func TestMemberThatDiffersIsNamed(t *testing.T) {
	for name, change := range map[string]func(p *part){
		"size":      func(p *part) { p.s.Steps[0].Buf.At = 8 },
		"root":      func(p *part) { p.s.Steps[0].Peer = int32(code(coll.Bcast, 1)) },
		"operation": func(p *part) { p.s.Steps[0].Peer = 1<<31 - 1 },
		"data":      func(p *part) { p.s.Steps[0].N = 8 },
	} {
		l, x, _ := pair(t)
		give := newPart(l, x[0], 1, func(w Steps) { w.Post(coll.Ref{}, 64) })
		take := newPart(l, x[1], 1, func(w Steps) { w.Pass(); w.Fetch(0, 0, coll.Ref{Slot: coll.Out}, 64) })
		change(give)
		over(t, give, true)
		if _, err := take.run(); err == nil {
			t.Errorf("%s: no error", name)
		} else if take.call.Out[0] != 0 {
			t.Errorf("%s: it was taken", name)
		}
	}
}

// TestMemberThatGoesOnWithoutAPostIsNamed: it takes another one for the root.
func TestMemberThatGoesOnWithoutAPostIsNamed(t *testing.T) {
	l, x, _ := pair(t)
	for _, p := range []*part{newPart(l, x[0], 1, func(w Steps) { w.Pass() }), newPart(l, x[0], 2, func(w Steps) { w.Post(coll.Ref{}, 0) })} {
		over(t, p, true)
	}
	take := newPart(l, x[1], 1, func(w Steps) { w.Pass(); w.Fetch(0, 0, coll.Ref{}, 0) })
	for range 2 * patience {
		if done, err := take.run(); done {
			t.Fatal("it took something")
		} else if err != nil {
			return
		}
	}
	t.Error("it waits on")
}

// TestWhoHasNoAreaSaysSo: without a transport that shares memory, without room, with a card
// that names nothing.
func TestWhoHasNoAreaSaysSo(t *testing.T) {
	l := New(coll.Shape{Size: 2}, 1)
	if _, err := l.Open(coll.Env{Member: coll.Member{Size: 2}}); err == nil {
		t.Error("without a transport: no error")
	}
	if _, err := l.Open(coll.Env{Member: coll.Member{Size: 2}, Node: &heap{fail: errors.New("there is no room")}}); err == nil {
		t.Error("without room: no error")
	}
	for _, card := range [][]byte{nil, {7}, {8, 0, 0, 0}, {7, 0, 0, 0, 0}} {
		x, err := l.Open(coll.Env{Member: coll.Member{Rank: 1, Size: 2}, Node: new(heap)})
		if err == nil {
			err = x.Join([][]byte{card, nil})
		}
		if err == nil {
			t.Errorf("card %x: no error", card)
		}
		x.Close()
	}
}

// FuzzLine: whatever a member writes into its slots, others get an error, or wait.
func FuzzLine(f *testing.F) {
	f.Add(make([]byte, lineSize))
	good := binary.LittleEndian.AppendUint32(nil, 1)
	good = binary.LittleEndian.AppendUint32(good, code(coll.Bcast, 0))
	good = binary.LittleEndian.AppendUint64(good, 64)
	f.Add(binary.LittleEndian.AppendUint32(good, 64))
	f.Add(binary.LittleEndian.AppendUint32(good, 1<<32-1))
	l, _, h := pair(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		clear(h.bytes)
		x := &Instance{l: l, ranks: []int{0, 1}, seat: 1}
		x.place(h.bytes)
		for slot := range slots { // of rank 0
			copy(h.bytes[slot*lineSize:][:lineSize], b)
		}
		p := newPart(l, x, 1, func(w Steps) {
			w.Post(coll.Ref{}, 64)
			w.Await()
			w.Fetch(0, 0, coll.Ref{Slot: coll.Out}, 64)
			for range slots {
				w.Pass()
			}
			w.Fill(0, 64, coll.Ref{}, 64)
			w.Filled(64)
		})
		if _, err := p.run(); err == nil && p.next < len(p.s.Steps) {
			_ = x.Awaits(&p.s.Steps[p.next])
		}
	})
}

// TestLineIsACacheLine, as docs/wire.md says.
func TestLineIsACacheLine(t *testing.T) {
	if n := mem.Size[line](); n != lineSize {
		t.Errorf("it has %d bytes", n)
	}
}
