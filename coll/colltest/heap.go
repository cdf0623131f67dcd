package colltest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/progress"
)

// Heap is a component whose members share memory on the heap of one process: a barrier
// and an allgather by way of an instance. It is for tests of what carries schedules out,
// where ranks are goroutines.
type Heap struct {
	// FailOpen and FailJoin are ranks, counted from 1, in which that fails.
	FailOpen, FailJoin int

	mu     sync.Mutex
	areas  []*area
	opened int // instances so far
	closed int

	withdrawals map[*coll.Call]int // Calls of Withdraw.
}

// withdrawCalls is the number of calls of Withdraw until the buffers are not used any more.
const withdrawCalls = 3

// heapSize is how much memory an instance has, in bytes.
const heapSize = 1 << 20

// area is what the members of a communicator share.
type area struct {
	memory []byte
	size   int

	mu      sync.Mutex
	current uint32            // the operation, plus one, that uses the memory
	arrived map[[2]uint32]int // by operation and stage
}

// Component returns the component, for a registry.
func (h *Heap) Component() coll.Component {
	return heapComponent{framework.Basic{
		Kind: framework.Coll, Name: "heap", Version: "1.0.0", Priority: heapPriority,
		Summary: "collectives in memory of one process, for tests",
	}, h}
}

const heapPriority = 50

type heapComponent struct {
	framework.Basic
	h *Heap
}

// The stages of an operation: what step Own does.
const (
	stageBegin = iota // when nobody uses the memory for another operation
	stageFilled
	stageAllFilled // once all have
	stageLeft
)

func own(s *coll.Schedule, stage uint8) { s.Own(stage, 0, 0, coll.Ref{}, coll.Ref{}) }

func (c heapComponent) Query(_ any, shape coll.Shape) *coll.Offer {
	if shape.ProcsAsNodes().Nodes != nil {
		return nil
	}
	return &coll.Offer{
		Priority: heapPriority,
		Open:     c.h.open,
		Algorithms: []coll.Algorithm{
			{Op: coll.Barrier, Name: "counter", Plan: func(s *coll.Schedule, _ coll.Member, _ *coll.Args) {
				for _, stage := range []uint8{stageBegin, stageFilled, stageAllFilled, stageLeft} {
					own(s, stage)
					s.Wait()
				}
			}},
			{Op: coll.Allgather, Name: "memory", Plan: func(s *coll.Schedule, m coll.Member, a *coll.Args) {
				mine, size := a.RecvBlock(m.Rank)
				if !a.InPlace {
					mine = a.Input()
				}
				own(s, stageBegin)
				s.Wait()
				s.Copy(coll.Ref{Slot: coll.Shared, At: m.Rank * size}, mine, size)
				s.Wait()
				own(s, stageFilled)
				s.Wait()
				own(s, stageAllFilled)
				s.Wait()
				s.Work(0, 0, m.Size*size, coll.Ref{Slot: coll.Out}, coll.Ref{Slot: coll.Shared})
				s.Wait()
				own(s, stageLeft)
			}},
		},
	}
}

// Left returns how many instances were opened, and how many of them are not closed.
func (h *Heap) Left() (opened, left int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.opened, h.opened - h.closed
}

func (h *Heap) open(m coll.Env) (coll.Instance, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m.Rank == h.FailOpen-1 {
		return nil, errors.New("there is no room")
	}
	h.opened++
	x := &heapInstance{h: h, m: m}
	if m.Rank == 0 {
		h.areas = append(h.areas, &area{memory: make([]byte, heapSize), size: m.Size, arrived: map[[2]uint32]int{}})
		x.card = binary.LittleEndian.AppendUint64(nil, uint64(len(h.areas)))
	}
	return x, nil
}

type heapInstance struct {
	h    *Heap
	m    coll.Env
	card []byte
	a    *area

	bells []progress.RemoteBell
	leave []func()
}

func (x *heapInstance) Card() []byte { return x.card }

func (x *heapInstance) Join(cards [][]byte) error {
	x.h.mu.Lock()
	defer x.h.mu.Unlock()
	if x.m.Rank == x.h.FailJoin-1 {
		return errors.New("there is no room to join")
	}
	if len(cards[0]) < 8 {
		return errors.New("a card that names no area")
	}
	at := binary.LittleEndian.Uint64(cards[0]) - 1
	if at >= uint64(len(x.h.areas)) {
		return fmt.Errorf("there is no area %d", at)
	}
	x.a = x.h.areas[at]
	for rank := range x.m.Size {
		if rank != x.m.Rank {
			bell, leave, err := x.m.Node.Bell(rank)
			if err != nil {
				return err
			}
			x.bells, x.leave = append(x.bells, bell), append(x.leave, leave)
		}
	}
	return nil
}

func (x *heapInstance) Agreed() {}

func (x *heapInstance) Memory() []byte { return x.a.memory }

func (x *heapInstance) Try(s *coll.Step, call *coll.Call) (bool, error) {
	a, op := x.a, call.Turn
	a.mu.Lock()
	defer a.mu.Unlock()
	defer func() {
		for _, b := range x.bells {
			b.Ring()
		}
	}()
	filled, left := [2]uint32{op, stageFilled}, [2]uint32{op, stageLeft}
	switch s.Do {
	case stageBegin:
		if a.current == 0 {
			a.current = op + 1
		}
		return a.current == op+1, nil
	case stageFilled:
		a.arrived[filled]++
	case stageAllFilled:
		return a.arrived[filled] == a.size, nil
	case stageLeft:
		if a.arrived[left]++; a.arrived[left] == a.size {
			delete(a.arrived, filled)
			delete(a.arrived, left)
			a.current = 0
		}
	}
	return true, nil
}

// Work implements coll.Worker: it copies from the memory.
func (x *heapInstance) Work(s *coll.Step, c *coll.Call) {
	copy(c.At(s.Buf, s.N), c.At(s.From, s.N))
}

// Withdraw implements coll.Withdrawer.
func (x *heapInstance) Withdraw(c *coll.Call) bool {
	x.h.mu.Lock()
	defer x.h.mu.Unlock()
	if x.h.withdrawals == nil {
		x.h.withdrawals = map[*coll.Call]int{}
	}
	x.h.withdrawals[c]++
	return x.h.withdrawals[c] >= withdrawCalls
}

// Withdrawn returns the number of calls whose buffers were withdrawn. A call that returned
// before that is an error.
func (h *Heap) Withdrawn() (n int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, calls := range h.withdrawals {
		if calls != withdrawCalls {
			err = fmt.Errorf("a call returned after %d calls of Withdraw, want %d", calls, withdrawCalls)
		}
	}
	return len(h.withdrawals), err
}

func (x *heapInstance) Close() {
	for _, leave := range x.leave {
		leave()
	}
	x.h.mu.Lock()
	defer x.h.mu.Unlock()
	x.h.closed++
}
