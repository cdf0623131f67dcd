// Package area implements the collective segment that the members of a communicator on one node share, and
// the schedule steps that use it. Collective components in shared memory are built on it.
//
// All members run the same phases. In a phase a member posts data, or passes, and reads the posts of others of
// this phase or the one before. A post also acknowledges all reads of earlier phases, so posts are the only
// writes. Each member has eight slots. A member that only passes still posts every fourth phase, which lets
// writers be two phases ahead of the slowest reader.
//
// Operations use the segment one after the other in the order of their beginnings, equal in all members.
//
// docs/wire.md has the layout. Values written by peers are read once and checked.
package area

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/internal/mem"
	"github.com/ferrympi/ferry/internal/ring"
	"github.com/ferrympi/ferry/progress"
)

// slots is the number of posts that a member keeps, a power of two. Of maxPasses consecutive passes the last one
// is posted.
const (
	slots     = 8
	maxPasses = slots / 2
)

// line is the first cache line of a slot. Its member writes it, and others read it.
type line struct {
	// Phase from 1, 0 if empty. Stored last, atomically.
	posted uint32
	// Operation and root.
	code  uint32
	total uint64 // Args.Size.
	// Bytes of data, with the flag pastCaches.
	length   uint32
	readCost [storeModes]cost
	// Holds data up to its size.
	data [40]byte
}

// pastCaches is the flag of line.length for data stored past the caches.
const pastCaches = 1 << 31

const lineSize = 64

// Limits of the data of a slot, in bytes. The engine's lock is held while a chunk is copied, for some
// microseconds.
const (
	minChunk = 256
	maxChunk = 16 << 10
)

// MaxMembers limits the ranks of one process that share a segment. Each member polls all others.
const MaxMembers = 64

// ShapeFor returns the shape for New. Segments are shared by the ranks of a process if a process has several, and
// of a node otherwise. ok is false if a process has more than MaxMembers ranks.
func ShapeFor(shape coll.Shape) (_ coll.Shape, ok bool) {
	return shape.ProcsAsNodes(), shape.MaxPerProc() <= MaxMembers
}

// Layout is the layout of a segment, equal in all members of a communicator.
type Layout struct {
	// Nodes of the ranks. The index of a rank on its node is its local rank.
	coll.Placement

	chunk int
}

// New returns the layout for segments of about size bytes.
func New(shape coll.Shape, size int) *Layout {
	l := &Layout{Placement: shape.ByNode()}
	l.chunk = min(max(size/(l.Largest()*slots), minChunk), maxChunk) &^ (lineSize - 1)
	return l
}

// Chunk returns the largest post, in bytes.
func (l *Layout) Chunk() int { return l.chunk }

func (l *Layout) areaSize(n int) int { return n * slots * (lineSize + l.chunk) }

// Instance is the state of one member of a segment. It implements coll.Instance.
type Instance struct {
	layout *Layout
	// On this node, by local rank.
	ranks     []int
	localRank int

	node    coll.Node
	segment *btl.Area
	card    []byte
	// Of the other members.
	bells      []progress.RemoteBell
	closeBells []func()
	// Bells require a visible post, because members are ranks of this process.
	isOrdered bool

	// By local rank and slot.
	lines []line
	// By local rank and slot.
	data []byte
	// Phases that this member has begun.
	phase      uint32
	lastPosted uint32
	// All members have posted this phase or a later one.
	allPosted uint32
	// Local rank that AwaitAll polls next.
	awaited int
	// Since the last post that was found.
	emptyPolls int
	operations []operation
	writer     storeSelector
}

// operation is one that has begun here and uses the segment when it is first in the queue.
type operation struct {
	sequence uint32
	code     uint32
	total    uint64
}

var errNoMemory = errors.New("no open transport shares memory; add shm to btl")

// Open opens a member's part.
func (l *Layout) Open(env coll.Env) (coll.Instance, error) {
	x := &Instance{layout: l, ranks: l.Ranks(l.Node(env.Rank)), localRank: l.Index(env.Rank), node: env.Node, writer: newStoreSelector()}
	size := l.areaSize(len(x.ranks))
	switch {
	case len(x.ranks) == 1:
		x.mapBytes(ring.Aligned(size))
	case env.Node == nil:
		return nil, errNoMemory
	case x.localRank == 0:
		a, err := env.Node.NewArea(size)
		if err != nil {
			return nil, err
		}
		x.segment, x.card = a, binary.LittleEndian.AppendUint32(nil, a.Number)
		x.mapBytes(a.Bytes)
	}
	return x, nil
}

func (x *Instance) mapBytes(b []byte) {
	all := len(x.ranks) * slots
	x.lines, x.data = mem.Of[line](b[:all*lineSize]), b[all*lineSize:]
}

// Card implements coll.Instance. The first member returns the number of the segment.
func (x *Instance) Card() []byte { return x.card }

// Join implements coll.Instance.
func (x *Instance) Join(cards [][]byte) error {
	if len(x.ranks) == 1 {
		return nil
	}
	if first := x.ranks[0]; x.segment == nil {
		if len(cards[0]) != 4 {
			return fmt.Errorf("rank %d: collective segment card has %d bytes, want 4", first, len(cards[0]))
		}
		a, err := x.node.OpenArea(first, binary.LittleEndian.Uint32(cards[0]), x.layout.areaSize(len(x.ranks)))
		if err != nil {
			return err
		}
		x.segment = a
		x.mapBytes(a.Bytes)
	}
	for localRank, rank := range x.ranks {
		if localRank == x.localRank {
			continue
		}
		bell, leave, err := x.node.Bell(rank)
		if err != nil {
			return err
		}
		x.bells, x.closeBells = append(x.bells, bell), append(x.closeBells, leave)
		x.isOrdered = bell.Ordered()
	}
	return nil
}

// Activate implements coll.Instance.
func (x *Instance) Activate() {
	if x.segment != nil {
		x.segment.Hide()
	}
}

// Memory implements coll.Instance. Steps refer to no memory.
func (x *Instance) Memory() []byte { return nil }

// Close implements coll.Instance.
func (x *Instance) Close() {
	for _, leave := range x.closeBells {
		leave()
	}
	if x.segment != nil {
		x.segment.Close()
	}
	x.lines, x.data, x.segment, x.closeBells, x.bells = nil, nil, nil, nil, nil
}
