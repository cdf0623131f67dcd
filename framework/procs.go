package framework

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"sort"
)

// A ProcRun is Count processes of a namespace, at least one, with the ranks First, First+Stride, First+2*Stride and so on.
type ProcRun struct {
	Namespace string
	First     uint32
	// 0 if and only if Count is 1.
	Stride int32
	Count  uint32
}

// At returns the process at index i, which is below Count.
func (r ProcRun) At(i int) Proc {
	return Proc{Namespace: r.Namespace, Rank: uint32(int64(r.First) + int64(i)*int64(r.Stride))}
}

// Index returns the index of a rank, or -1.
func (r ProcRun) Index(rank uint32) int {
	distance, stride := int64(rank)-int64(r.First), int64(r.Stride)
	if distance == 0 {
		return 0
	}
	if stride == 0 || distance%stride != 0 {
		return -1
	}
	if i := distance / stride; i > 0 && i < int64(r.Count) {
		return int(i)
	}
	return -1
}

// extend appends p if it follows the pattern.
func (r *ProcRun) extend(p Proc) bool {
	if r.Count == 0 || r.Namespace != p.Namespace {
		return false
	}
	stride := int64(r.Stride)
	if r.Count == 1 {
		stride = int64(p.Rank) - int64(r.First)
	}
	if stride == 0 || stride != int64(int32(stride)) || int64(r.First)+int64(r.Count)*stride != int64(p.Rank) || r.Count == math.MaxUint32 {
		return false
	}
	r.Stride = int32(stride)
	r.Count++
	return true
}

// Procs is an immutable list of processes in runs. Processes without a pattern take 4 bytes each. The zero
// value is empty.
type Procs struct {
	blocks    []procBlock
	procCount int
}

// procBlock is consecutive processes of a list, of one namespace.
type procBlock struct {
	// Without ranks, the processes. With ranks, only its namespace and count are set.
	ProcRun
	// nil if the processes have a pattern.
	ranks []uint32
	// Of the first process in the list.
	firstIndex int
}

// shortestRun is the least number of processes of a block that is a run, unless it is the only block. Shorter runs would need more
// memory than their ranks, because of the block of ranks that may follow.
const shortestRun = 32

// MakeProcs returns a list of the processes. Equal lists have equal memory.
func MakeProcs(procs iter.Seq[Proc]) Procs {
	var b ProcsBuilder
	for p := range procs {
		b.Add(p)
	}
	return b.Procs()
}

// ProcsOf returns a list of the processes. It does not keep its argument.
func ProcsOf(procs ...Proc) Procs { return MakeProcs(slices.Values(procs)) }

// ConsecutiveProcs returns the count processes of a namespace from rank first on.
func ConsecutiveProcs(namespace string, first uint32, count int) Procs {
	run := ProcRun{Namespace: namespace, First: first, Count: uint32(count)}
	switch {
	case count == 0:
		return Procs{}
	case count > 1:
		run.Stride = 1
	}
	return Procs{blocks: []procBlock{{ProcRun: run}}, procCount: count}
}

// ProcsOfRanks returns the processes of a namespace that have these ranks. It does not keep its argument.
func ProcsOfRanks(namespace string, ranks []uint32) Procs {
	var b ProcsBuilder
	for _, r := range ranks {
		b.Add(Proc{Namespace: namespace, Rank: r})
	}
	return b.Procs()
}

// A ProcsBuilder builds a list. Its zero value is ready for use.
type ProcsBuilder struct {
	builtProcs Procs
	// Last processes, which are not in builtProcs yet.
	openRun ProcRun
}

// Add appends a process.
func (b *ProcsBuilder) Add(p Proc) {
	if b.openRun.extend(p) {
		return
	}
	b.flush(shortestRun)
	b.openRun = ProcRun{Namespace: p.Namespace, First: p.Rank, Count: 1}
}

// Len returns the number of processes.
func (b *ProcsBuilder) Len() int { return b.builtProcs.procCount + int(b.openRun.Count) }

// Procs returns the list, and empties the builder.
func (b *ProcsBuilder) Procs() Procs {
	if len(b.builtProcs.blocks) == 0 {
		b.flush(1)
	} else {
		b.flush(shortestRun)
		b.builtProcs.blocks = slices.Clone(b.builtProcs.blocks) // Without spare capacity.
		for i, x := range b.builtProcs.blocks {
			b.builtProcs.blocks[i].ranks = slices.Clone(x.ranks)
		}
	}
	list := b.builtProcs
	*b = ProcsBuilder{}
	return list
}

// flush moves run to list, as a separate block if it has the shortest length.
func (b *ProcsBuilder) flush(shortest int) {
	r, l := b.openRun, &b.builtProcs
	b.openRun = ProcRun{}
	if r.Count == 0 {
		return
	}
	last := len(l.blocks) - 1
	switch {
	case int(r.Count) >= shortest:
		l.blocks = append(l.blocks, procBlock{ProcRun: r, firstIndex: l.procCount})
	case last < 0 || l.blocks[last].ranks == nil || l.blocks[last].Namespace != r.Namespace:
		l.blocks = append(l.blocks, procBlock{ProcRun: ProcRun{Namespace: r.Namespace}, firstIndex: l.procCount})
		last++
		fallthrough
	default:
		x := &l.blocks[last]
		for i := range int(r.Count) {
			x.ranks = append(x.ranks, r.At(i).Rank)
		}
		x.Count += r.Count
	}
	l.procCount += int(r.Count)
}

// Len returns the number of processes.
func (l Procs) Len() int { return l.procCount }

// At returns the process at index i, which is below Len.
func (l Procs) At(i int) Proc {
	b := &l.blocks[0]
	if i >= int(b.Count) {
		b = &l.blocks[sort.Search(len(l.blocks), func(n int) bool { return l.blocks[n].firstIndex > i })-1]
	}
	return b.at(i - b.firstIndex)
}

// at returns the process at index i of the block.
func (b *procBlock) at(i int) Proc {
	if b.ranks != nil {
		return Proc{Namespace: b.Namespace, Rank: b.ranks[i]}
	}
	return b.ProcRun.At(i)
}

// Index returns the first index of a process, or -1. It searches the list. Lookup is for many processes.
func (l Procs) Index(p Proc) int {
	for i := range l.blocks {
		b := &l.blocks[i]
		if b.Namespace != p.Namespace {
			continue
		}
		at := -1
		if b.ranks != nil {
			at = slices.Index(b.ranks, p.Rank)
		} else {
			at = b.ProcRun.Index(p.Rank)
		}
		if at >= 0 {
			return b.firstIndex + at
		}
	}
	return -1
}

// maxSearchSteps is the number of steps up to which a search is as fast as a map.
const maxSearchSteps = 16

// Lookup returns a function that is equal to Index. It takes the time of a map, which is built here if a search
// takes longer.
func (l Procs) Lookup() func(Proc) int {
	if l.isShort() {
		return l.Index
	}
	indices := make(map[Proc]int32, l.procCount)
	for i, p := range l.All() {
		if _, isTwice := indices[p]; !isTwice {
			indices[p] = int32(i)
		}
	}
	return func(p Proc) int {
		if i, ok := indices[p]; ok {
			return int(i)
		}
		return -1
	}
}

// Finder is Lookup for a function that is kept. It takes longer than a map, and 4 bytes for each process.
func (l Procs) Finder() func(Proc) int {
	if l.isShort() {
		return l.Index
	}
	compare := func(i uint32, p Proc) int {
		at := l.At(int(i))
		return cmp.Or(cmp.Compare(at.Rank, p.Rank), cmp.Compare(at.Namespace, p.Namespace))
	}
	order := make([]uint32, l.procCount)
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(i, j uint32) int { return cmp.Or(compare(i, l.At(int(j))), cmp.Compare(i, j)) })
	return func(p Proc) int {
		if at, found := slices.BinarySearchFunc(order, p, compare); found {
			return int(order[at])
		}
		return -1
	}
}

// isShort reports whether a search of the list is short.
func (l Procs) isShort() bool {
	steps := 0
	for _, b := range l.blocks {
		steps += 1 + len(b.ranks)
	}
	return steps <= maxSearchSteps
}

// All returns the processes with their indices.
func (l Procs) All() iter.Seq2[int, Proc] {
	return func(yield func(int, Proc) bool) {
		for n := range l.blocks {
			b := &l.blocks[n]
			for i := range int(b.Count) {
				if !yield(b.firstIndex+i, b.at(i)) {
					return
				}
			}
		}
	}
}

// Runs returns the runs of the list. Each is as long as it can be after the one before it, so that equal lists have equal runs.
func (l Procs) Runs() iter.Seq[ProcRun] {
	return func(yield func(ProcRun) bool) {
		for n := range l.blocks {
			b := &l.blocks[n]
			if b.ranks == nil {
				if !yield(b.ProcRun) {
					return
				}
				continue
			}
			run := ProcRun{}
			for i := range b.ranks {
				p := b.at(i)
				if run.extend(p) {
					continue
				}
				if run.Count > 0 && !yield(run) {
					return
				}
				run = ProcRun{Namespace: p.Namespace, First: p.Rank, Count: 1}
			}
			if !yield(run) {
				return
			}
		}
	}
}

// List returns the processes as a slice, which is the caller's.
func (l Procs) List() []Proc {
	list := make([]Proc, 0, l.procCount)
	for n := range l.blocks {
		b := &l.blocks[n]
		for i := range int(b.Count) {
			list = append(list, b.at(i))
		}
	}
	return list
}

// Equal reports whether two lists have the same processes in the same order.
func (l Procs) Equal(other Procs) bool {
	return l.procCount == other.procCount && slices.EqualFunc(l.blocks, other.blocks, func(a, b procBlock) bool {
		return a.ProcRun == b.ProcRun && a.firstIndex == b.firstIndex && slices.Equal(a.ranks, b.ranks)
	})
}
