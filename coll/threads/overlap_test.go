package threads

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/heap"
	"github.com/ferrympi/ferry/internal/ring"
	"github.com/ferrympi/ferry/progress"
)

// pendingPart is the part of one rank in one of several pending operations.
type pendingPart struct {
	x    coll.Instance
	s    coll.Schedule
	run  coll.Run
	call coll.Call
	open []int // Started steps.
	want uint64
}

// advance starts and polls steps of a nonblocking operation as package mpi does.
func (p *pendingPart) advance() error {
	for {
		i, ok := p.run.NextStep()
		if !ok {
			break
		}
		p.open = append(p.open, i)
	}
	for k := 0; k < len(p.open); k++ {
		i := p.open[k]
		s := &p.s.Steps[i]
		if s.Kind == coll.Work {
			p.x.(coll.Worker).Work(s, &p.call)
		} else if done, err := p.x.PollStep(s, &p.call); err != nil {
			return err
		} else if !done {
			continue
		}
		p.open = append(p.open[:k], p.open[k+1:]...)
		p.run.Complete(i)
		k--
	}
	return nil
}

// openAll opens the instances of n ranks of a process.
func openAll(t *testing.T, n int) (*coll.Offer, []coll.Instance) {
	o := Component().Query(&standard, coll.Shape{Size: n, Procs: coll.OnOneNode(n)})
	ranks, cards, all := make([]int, n), make([][]byte, n), make([]coll.Instance, n)
	for rank := range ranks {
		ranks[rank] = rank
	}
	bell := progress.BellAt(ring.Aligned(progress.BellSize))
	node := heap.New(ranks, func(int) progress.RemoteBell { return bell })
	var err error
	for rank := range all {
		if all[rank], err = o.Open(coll.Env{Member: coll.Member{Rank: rank, Size: n}, Node: node.NodeOf(rank)}); err != nil {
			t.Fatal(err)
		}
		cards[rank] = all[rank].Card()
	}
	for _, x := range all {
		if err := x.Join(cards); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(x.Close)
	}
	for _, x := range all {
		x.Activate()
	}
	return o, all
}

// All ranks have begun all operations and advance them in random order.
func TestOperations_SeveralUnderWay_DoNotMix(t *testing.T) {
	const operations = 12
	for _, n := range []int{2, 3, 10} {
		o, instances := openAll(t, n)
		for seed := range uint64(30) {
			random := rand.New(rand.NewPCG(seed, 0))
			var parts []*pendingPart
			for rank, x := range instances {
				for turn := range operations {
					a := &o.Algorithms[turn%len(o.Algorithms)]
					size := []int{8, 800}[turn/2%2]
					args := coll.Args{Root: turn % n, Size: size, OwnSize: size, ElemSize: 8, IsQuick: true}
					p := &pendingPart{x: x}
					p.call = coll.Call{Sequence: uint32(seed)*operations + uint32(turn), Reducer: sum,
						Buffers: coll.Buffers{In: make([]byte, size), Out: make([]byte, size)}}
					binary.LittleEndian.PutUint64(p.call.In, uint64(1000*turn+rank))
					switch {
					case a.Op == coll.Bcast:
						binary.LittleEndian.PutUint64(p.call.Out, uint64(1000*turn+rank))
						p.want = uint64(1000*turn + args.Root)
					case a.Op == coll.Allreduce || a.Op == coll.Reduce && rank == args.Root:
						p.want = uint64(n*1000*turn + n*(n-1)/2)
					}
					a.Plan(&p.s, coll.Member{Rank: rank, Size: n}, &args)
					p.call.Temp = make([]byte, p.s.Temp)
					p.run.Begin(&p.s)
					if err := p.advance(); err != nil {
						t.Fatal(err)
					}
					parts = append(parts, p)
				}
			}
			if err := finish(random, parts); err != nil {
				t.Fatalf("%d ranks, seed %d: %v", n, seed, err)
			}
		}
	}
}

// finish advances the parts in random order until all are complete, and compares the results.
func finish(random *rand.Rand, parts []*pendingPart) error {
	for range 1000 {
		left := 0
		for _, i := range random.Perm(len(parts)) {
			if err := parts[i].advance(); err != nil {
				return err
			}
			if !parts[i].run.IsComplete() {
				left++
			}
		}
		if left > 0 {
			continue
		}
		for i, p := range parts {
			if got := binary.LittleEndian.Uint64(p.call.Out); got != p.want {
				return fmt.Errorf("part %d: %d, want %d", i, got, p.want)
			}
		}
		return nil
	}
	return fmt.Errorf("timeout: operations are still pending")
}
