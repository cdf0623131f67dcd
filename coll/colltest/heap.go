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

// Heap is a component whose members share Go memory in one process. It has a barrier and an
// allgather through an instance. It serves tests of the execution of schedules, in which ranks are
// goroutines.
type Heap struct {
	// FailOpen and FailJoin are the ranks, counted from 1, whose Open and Join fail.
	FailOpen, FailJoin int

	mu       sync.Mutex
	segments []*segment
	// Number of instances.
	openedCount int
	closedCount int

	// Calls of Withdraw.
	withdrawalCounts map[*coll.Call]int
}

// withdrawCalls is the number of calls of Withdraw until the buffers are unused.
const withdrawCalls = 3

// heapSize is the size of an instance's memory in bytes.
const heapSize = 1 << 20

// segment is the shared memory of a communicator's members.
type segment struct {
	memory []byte
	size   int

	mu sync.Mutex
	// Operation that uses the memory, plus one.
	currentUser uint32
	// Number of members by operation and stage.
	arrivalCounts map[[2]uint32]int
}

// Component returns the component for a registry.
func (h *Heap) Component() coll.Component {
	return heapComponent{framework.Basic{
		Kind: framework.Coll, Name: "heap", Version: "1.0.0", Priority: heapPriority,
		Summary: "collectives in memory of one process, for tests",
	}, h}
}

const heapPriority = 50

type heapComponent struct {
	framework.Basic
	heap *Heap
}

// Stages of an operation, which are the codes of steps of kind Own.
const (
	stageBegin = iota // Complete when no other operation uses the memory.
	stageFilled
	stageAllFilled // Complete when all members are filled.
	stageLeft
)

func addOwn(s *coll.Schedule, stage uint8) { s.Own(stage, 0, 0, coll.Ref{}, coll.Ref{}) }

func (c heapComponent) Query(_ any, shape coll.Shape) *coll.Offer {
	if shape.ProcsAsNodes().Nodes != nil {
		return nil
	}
	return &coll.Offer{
		Priority: heapPriority,
		Open:     c.heap.open,
		Algorithms: []coll.Algorithm{
			{Op: coll.Barrier, Name: "counter", Plan: func(s *coll.Schedule, _ coll.Member, _ *coll.Args) {
				for _, stage := range []uint8{stageBegin, stageFilled, stageAllFilled, stageLeft} {
					addOwn(s, stage)
					s.Wait()
				}
			}},
			{Op: coll.Allgather, Name: "memory", Plan: func(s *coll.Schedule, m coll.Member, a *coll.Args) {
				mine, size := a.RecvBlock(m.Rank)
				if !a.IsInPlace {
					mine = a.Input()
				}
				addOwn(s, stageBegin)
				s.Wait()
				s.Copy(coll.Ref{Slot: coll.Shared, At: m.Rank * size}, mine, size)
				s.Wait()
				addOwn(s, stageFilled)
				s.Wait()
				addOwn(s, stageAllFilled)
				s.Wait()
				s.Work(0, 0, m.Size*size, coll.Ref{Slot: coll.Out}, coll.Ref{Slot: coll.Shared})
				s.Wait()
				addOwn(s, stageLeft)
			}},
		},
	}
}

// OpenInstances returns the number of opened instances, and of those that are not closed.
func (h *Heap) OpenInstances() (opened, left int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.openedCount, h.openedCount - h.closedCount
}

func (h *Heap) open(m coll.Env) (coll.Instance, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m.Rank == h.FailOpen-1 {
		return nil, errors.New("no memory")
	}
	h.openedCount++
	x := &heapInstance{heap: h, env: m}
	if m.Rank == 0 {
		h.segments = append(h.segments, &segment{memory: make([]byte, heapSize), size: m.Size, arrivalCounts: map[[2]uint32]int{}})
		x.card = binary.LittleEndian.AppendUint64(nil, uint64(len(h.segments)))
	}
	return x, nil
}

type heapInstance struct {
	heap    *Heap
	env     coll.Env
	card    []byte
	segment *segment

	bells        []progress.RemoteBell
	bellReleases []func()
}

func (x *heapInstance) Card() []byte { return x.card }

func (x *heapInstance) Join(cards [][]byte) error {
	x.heap.mu.Lock()
	defer x.heap.mu.Unlock()
	if x.env.Rank == x.heap.FailJoin-1 {
		return errors.New("no memory to join")
	}
	if len(cards[0]) < 8 {
		return errors.New("card without a segment number")
	}
	at := binary.LittleEndian.Uint64(cards[0]) - 1
	if at >= uint64(len(x.heap.segments)) {
		return fmt.Errorf("no segment %d", at)
	}
	x.segment = x.heap.segments[at]
	for rank := range x.env.Size {
		if rank != x.env.Rank {
			bell, leave, err := x.env.Node.Bell(rank)
			if err != nil {
				return err
			}
			x.bells, x.bellReleases = append(x.bells, bell), append(x.bellReleases, leave)
		}
	}
	return nil
}

func (x *heapInstance) Activate() {}

func (x *heapInstance) Memory() []byte { return x.segment.memory }

func (x *heapInstance) PollStep(s *coll.Step, call *coll.Call) (bool, error) {
	a, op := x.segment, call.Sequence
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
		if a.currentUser == 0 {
			a.currentUser = op + 1
		}
		return a.currentUser == op+1, nil
	case stageFilled:
		a.arrivalCounts[filled]++
	case stageAllFilled:
		return a.arrivalCounts[filled] == a.size, nil
	case stageLeft:
		if a.arrivalCounts[left]++; a.arrivalCounts[left] == a.size {
			delete(a.arrivalCounts, filled)
			delete(a.arrivalCounts, left)
			a.currentUser = 0
		}
	}
	return true, nil
}

// Work implements coll.Worker. It copies from the memory.
func (x *heapInstance) Work(s *coll.Step, c *coll.Call) {
	copy(c.At(s.Buf, s.N), c.At(s.From, s.N))
}

// Withdraw implements coll.Withdrawer.
func (x *heapInstance) Withdraw(c *coll.Call) bool {
	x.heap.mu.Lock()
	defer x.heap.mu.Unlock()
	if x.heap.withdrawalCounts == nil {
		x.heap.withdrawalCounts = map[*coll.Call]int{}
	}
	x.heap.withdrawalCounts[c]++
	return x.heap.withdrawalCounts[c] >= withdrawCalls
}

// Withdrawn returns the number of calls whose buffers were withdrawn. It returns an error if a call
// returned before that.
func (h *Heap) Withdrawn() (n int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, calls := range h.withdrawalCounts {
		if calls != withdrawCalls {
			err = fmt.Errorf("a call returned after %d calls of Withdraw, want %d", calls, withdrawCalls)
		}
	}
	return len(h.withdrawalCounts), err
}

func (x *heapInstance) Close() {
	for _, leave := range x.bellReleases {
		leave()
	}
	x.heap.mu.Lock()
	defer x.heap.mu.Unlock()
	x.heap.closedCount++
}
