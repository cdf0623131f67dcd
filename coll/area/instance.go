// Package area is what collective components in shared memory are made of: an area that the
// members of a communicator on one node share, and the steps that go through it.
//
// Members do the same rounds. In a round each member posts, or passes if nobody wants to
// hear of it, and reads what others have posted, as far as it wants: in this round or the one
// before. A post says besides that its member has read what it wanted of all rounds before
// that. So nothing but posts is written,
// and a slot may be used again when all have posted often enough: each member has eight, in
// turns. Who passes posts every fourth time all the same, so that writers may be two
// rounds ahead of the slowest reader.
//
// Operations go through an area one after the other, in the order in which they begin, which
// is the same in all members; so those that are under way at the same time don't mix.
//
// docs/wire.md has the layout. What peers wrote is read once, and checked.
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

// slots is how many rounds of a member may lie in an area: a power of two. Of so many rounds
// in a row that a member passes, the last one is posted.
const (
	slots    = 8
	mostPass = slots / 2
)

// line is a slot's first cache line. A member writes its own, and others read them.
type line struct {
	posted uint32 // the round, counted from 1; 0: none. Written last, atomically
	code   uint32 // operation and root
	total  uint64 // Args.Size
	length uint32 // bytes of data; past: they were streamed
	// What it takes the member to read data of others, by how they were written; see writing.
	read [manners]cost
	data [40]byte // if they are no more than that
}

// past is a flag of line.length.
const past = 1 << 31

// lineSize is the size of a line: that of a cache line.
const lineSize = 64

// The sizes of the data of a slot, in bytes. The largest is copied or combined with the
// engine's lock held: some microseconds.
const (
	smallestChunk = 256
	largestChunk  = 16 << 10
)

// MostMembers is the largest number of ranks of one process that share an area. Each member
// polls all others.
const MostMembers = 64

// ShapeFor returns the shape for New where members are the ranks of a process, or otherwise of
// a node. ok is false if a process has too many ranks.
func ShapeFor(shape coll.Shape) (_ coll.Shape, ok bool) {
	return shape.ProcsAsNodes(), shape.MostPerProc() <= MostMembers
}

// Layout is the plan of an area. All members of a communicator come to the same.
type Layout struct {
	coll.Placement // Of the ranks on nodes. Members of an area are named by their index on the node, their seat.

	chunk int
}

// New returns the layout on communicators of that shape, for areas of about size bytes.
func New(shape coll.Shape, size int) *Layout {
	l := &Layout{Placement: shape.ByNode()}
	l.chunk = min(max(size/(l.Largest()*slots), smallestChunk), largestChunk) &^ (lineSize - 1)
	return l
}

// Chunk returns how much a member can post in a round, in bytes.
func (l *Layout) Chunk() int { return l.chunk }

// areaSize is how many bytes an area for n members has.
func (l *Layout) areaSize(n int) int { return n * slots * (lineSize + l.chunk) }

// Instance is one member's part of an area. It implements coll.Instance.
type Instance struct {
	l     *Layout
	ranks []int // on this node
	seat  int

	node  coll.Node
	area  *btl.Area
	card  []byte
	bells []progress.RemoteBell // of the others
	leave []func()
	// isOrdered: members are ranks of this process, whose bells require that a post is visible.
	isOrdered bool

	lines []line // by seat and slot
	data  []byte // likewise
	round uint32 // rounds that this member has begun
	last  uint32 // the last one that it has posted, counted from 1
	known uint32 // rounds that all have posted, at least
	next  int    // whose post is looked for next, of those that are awaited
	looks int    // at a post that is not there, since the last one that was
	queue []op   // that have begun here, in order
	w     writing
}

// op is an operation that goes through the area.
type op struct {
	turn  uint32
	code  uint32
	total uint64
}

var errNoMemory = errors.New("no open transport shares memory: btl shm does")

// Open opens a member's part.
func (l *Layout) Open(env coll.Env) (coll.Instance, error) {
	x := &Instance{l: l, ranks: l.Ranks(l.Node(env.Rank)), seat: l.Index(env.Rank), node: env.Node}
	size := l.areaSize(len(x.ranks))
	switch {
	case len(x.ranks) == 1: // it is alone
		x.place(ring.Aligned(size))
	case env.Node == nil:
		return nil, errNoMemory
	case x.seat == 0:
		a, err := env.Node.NewArea(size)
		if err != nil {
			return nil, err
		}
		x.area, x.card = a, binary.LittleEndian.AppendUint32(nil, a.Number)
		x.place(a.Bytes)
	}
	return x, nil
}

func (x *Instance) place(b []byte) {
	all := len(x.ranks) * slots
	x.lines, x.data = mem.Of[line](b[:all*lineSize]), b[all*lineSize:]
}

// Card implements coll.Instance: the number of the area, in the first member.
func (x *Instance) Card() []byte { return x.card }

// Join implements coll.Instance.
func (x *Instance) Join(cards [][]byte) error {
	if len(x.ranks) == 1 {
		return nil
	}
	if first := x.ranks[0]; x.area == nil {
		if len(cards[0]) != 4 {
			return fmt.Errorf("rank %d: a card of %d bytes", first, len(cards[0]))
		}
		a, err := x.node.OpenArea(first, binary.LittleEndian.Uint32(cards[0]), x.l.areaSize(len(x.ranks)))
		if err != nil {
			return err
		}
		x.area = a
		x.place(a.Bytes)
	}
	for seat, rank := range x.ranks {
		if seat == x.seat {
			continue
		}
		bell, leave, err := x.node.Bell(rank)
		if err != nil {
			return err
		}
		x.bells, x.leave = append(x.bells, bell), append(x.leave, leave)
		x.isOrdered = bell.Ordered()
	}
	return nil
}

// Agreed implements coll.Instance.
func (x *Instance) Agreed() {
	if x.area != nil {
		x.area.Hide()
	}
}

// Memory implements coll.Instance: steps name none.
func (x *Instance) Memory() []byte { return nil }

// Close implements coll.Instance.
func (x *Instance) Close() {
	for _, leave := range x.leave {
		leave()
	}
	if x.area != nil {
		x.area.Close()
	}
	x.lines, x.data, x.area, x.leave, x.bells = nil, nil, nil, nil, nil
}
