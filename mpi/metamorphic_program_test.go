package mpi_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// A program is the sequence of operations of all ranks, derived from a seed. Its outcome is all bytes that each rank receives. The MPI standard
// determines it, independent of the stack, the algorithms and the distribution of ranks over processes.
//
// Steps have one order that is common to all ranks. Each rank runs the steps that it takes part in. The first step in that order with a blocked rank
// can always proceed, so that no deadlock is possible. Between two blocking steps, a rank starts nonblocking ones in a random order that preserves only
// the order of each communicator.
type program struct {
	Seed  uint64
	Ranks int
	Steps []step
	// HasPartitioned makes partitioned operations of some messages, with the same outcome.
	HasPartitioned bool
}

// step is one step of a program. A step on a communicator that a smaller program does not create has no effect.
type step struct {
	ID         int // contents and tag; a smaller program keeps it
	Kind       string
	Comm       int    // where; 0 is that of all ranks
	Made       int    // dup, split: the number of the new one
	Elem       string // type of elements
	Bytes      int    // of a block, about
	Root       int    // modulo the number of members, like From and To
	From, To   int    // message
	Blocking   bool   // collective, or the sender's side of a message
	RecvBlocks bool   // the receiver's side
	InPlace    bool
	Vary       int // layout of vectors, mode of a message, way of a wait
}

// collectiveKinds are drawn from, the others stand in draw. Those that most components
// offer stand there more than once.
var collectiveKinds = []string{
	"bcast", "reduce", "reduce", "allreduce", "allreduce",
	"barrier", "bcast", "reduce", "allreduce", "scan", "exscan", "reduce_scatter_block", "reduce_scatter",
	"gather", "gatherv", "scatter", "scatterv", "allgather", "allgatherv", "alltoall", "alltoallv",
}

// neighborKinds take the place of some collectives.
var neighborKinds = []string{"neighbor_allgather", "neighbor_allgatherv", "neighbor_alltoall", "neighbor_alltoallv"}

// elems are the types of elements with their reductions. The last ones, which do not commute, are chosen most often.
var elems = []string{"byte sum", "uint64 sum", "int32 max", "byte triangle", "uint32 affine"}

// stepBytes are sizes around the limits of cells, frames, areas and algorithms.
var stepBytes = []int{
	0, 0, 1, 3, 8, 63, 64, 65, 72, 129, 256, 257, 500, 1023, 1024, 2048, 2049, 4095, 4096, 4097, 8191, 8192, 8193,
	16384, 16385, 32767, 32768, 33000, 49152, 65535, 65536, 65537, 100001, 131072, 204800,
}

// draw makes the program of a seed.
func draw(seed uint64) program {
	rng := rand.New(rand.NewPCG(seed, 16))
	p := program{Seed: seed, Ranks: []int{3, 2, 4, 5, 6, 2, 8, 3, 4, 1}[seed%10]}
	one := func(n int) bool { return rng.IntN(n) == 0 }
	open, made := []int{0}, 1
	length := 12 + rng.IntN(28)
	if one(4) {
		length *= 3
	}
	for id := range length {
		s := step{
			ID: id, Comm: open[rng.IntN(len(open))], Elem: elems[max(rng.IntN(len(elems)), rng.IntN(len(elems)))], Bytes: stepBytes[rng.IntN(len(stepBytes))],
			Root: rng.IntN(p.Ranks), From: rng.IntN(p.Ranks), To: rng.IntN(p.Ranks), Blocking: one(2), RecvBlocks: one(2), InPlace: one(3),
			Vary: rng.IntN(1000),
		}
		switch k := rng.IntN(20); {
		case k < 2 && len(open) < 5 || id < 2:
			s.Kind, s.Made = "dup", made
			if one(2) {
				s.Kind = "split"
			}
			open = append(open, made)
			made++
		case k == 2 && s.Comm != 0:
			s.Kind = "close"
			open = slices.DeleteFunc(open, func(c int) bool { return c == s.Comm })
		case k < 5:
			s.Kind = "wait"
		case k < 6:
			s.Kind = "pause"
		case k < 9:
			s.Kind = "message"
		case k < 10:
			s.Kind = "exchange"
		default:
			s.Kind = collectiveKinds[rng.IntN(len(collectiveKinds))]
		}
		if s.Vary%6 == 1 && slices.Contains(collectiveKinds, s.Kind) { // Drawn without another number, for the programs of known seeds.
			s.Kind = neighborKinds[s.Vary/6%len(neighborKinds)]
		}
		if (strings.HasSuffix(s.Kind, "v") || s.Kind == "alltoall") && s.Bytes > 70000 {
			s.Bytes /= 3
		}
		p.Steps = append(p.Steps, s)
	}
	return p
}

// String lists the steps.
func (p program) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "program of seed %d for %d ranks\n", p.Seed, p.Ranks)
	for _, s := range p.Steps {
		fmt.Fprintf(&b, "  %s\n", s)
	}
	return b.String()
}

func (s step) String() string {
	head := fmt.Sprintf("%d: communicator %d: %s", s.ID, s.Comm, s.Kind)
	switch s.Kind {
	case "dup", "split":
		return fmt.Sprintf("%s makes %d", head, s.Made)
	case "close", "pause":
		return head
	case "wait":
		return fmt.Sprintf("%s, way %d", head, s.Vary%waits)
	case "message":
		return fmt.Sprintf("%s of %d bytes, %d to %d, send blocks: %t, receive blocks: %t, vary %d", head, s.Bytes, s.From, s.To, s.Blocking, s.RecvBlocks, s.Vary)
	}
	if s.Kind == "exchange" {
		return fmt.Sprintf("%s of %d bytes, by %d ranks, blocking: %t, one buffer: %t, vary %d", head, s.Bytes, s.Root, s.Blocking, s.InPlace, s.Vary)
	}
	return fmt.Sprintf("%s of %d bytes, %s, root %d, blocking: %t, in place: %t, vary %d", head, s.Bytes, s.Elem, s.Root, s.Blocking, s.InPlace, s.Vary)
}

// smaller returns programs that lack something of p, the larger parts first, or have it
// in a simpler way.
func (p program) smaller() (all []program) {
	for n := len(p.Steps) / 2; n > 0; n /= 2 {
		for at := 0; at < len(p.Steps); at += n {
			q := p
			q.Steps = slices.Delete(slices.Clone(p.Steps), at, min(at+n, len(p.Steps)))
			all = append(all, q)
		}
	}
	for i, s := range p.Steps {
		simple := s
		simple.Bytes = min(s.Bytes, 8)
		for _, x := range []step{simple, {ID: s.ID, Kind: s.Kind, Comm: s.Comm, Made: s.Made, Elem: s.Elem, Bytes: s.Bytes, Root: s.Root, From: s.From, To: s.To, Blocking: true, RecvBlocks: true}} {
			if x != s {
				q := p
				q.Steps = slices.Clone(p.Steps)
				q.Steps[i] = x
				all = append(all, q)
			}
		}
	}
	return all
}
