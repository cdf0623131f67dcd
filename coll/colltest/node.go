package colltest

import (
	"fmt"
	"sync"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/internal/ring"
	"github.com/ferrympi/ferry/progress"
)

// nodes are those of a communicator whose members are goroutines of one process: areas lie on
// the Go heap, where the race detector sees what happens.
type nodes struct {
	shape coll.Shape
	mu    sync.Mutex
	areas []heapArea
	bells []progress.RemoteBell
}

type heapArea struct {
	by    int
	bytes []byte
}

func newNodes(shape coll.Shape) *nodes {
	n := &nodes{shape: shape}
	for range shape.Size {
		n.bells = append(n.bells, progress.BellAt(ring.Aligned(progress.BellSize)))
	}
	return n
}

func (n *nodes) of(rank int) coll.Node { return &seat{n, rank} }

// seat is a member on its node.
type seat struct {
	*nodes
	rank int
}

func (p *seat) NewArea(size int) (*btl.Area, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := ring.Aligned(size)
	p.areas = append(p.areas, heapArea{p.rank, b})
	return &btl.Area{Number: uint32(len(p.areas)), Bytes: b, Hide: func() {}, Close: func() {}}, nil
}

func (p *seat) OpenArea(rank int, number uint32, size int) (*btl.Area, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if number < 1 || int(number) > len(p.areas) || p.areas[number-1].by != rank || len(p.areas[number-1].bytes) != size {
		return nil, fmt.Errorf("rank %d has no area %d of %d bytes", rank, number, size)
	}
	return &btl.Area{Number: number, Bytes: p.areas[number-1].bytes, Hide: func() {}, Close: func() {}}, p.near(rank)
}

func (p *seat) Bell(rank int) (progress.RemoteBell, func(), error) {
	return p.bells[rank], func() {}, p.near(rank)
}

// near says that a rank is not on this one's node.
func (p *seat) near(rank int) error {
	if p.shape.Node(rank) != p.shape.Node(p.rank) {
		return fmt.Errorf("rank %d is on another node than rank %d", rank, p.rank)
	}
	return nil
}
