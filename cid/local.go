package cid

import "fmt"

// Local is a process's own, small id of a communicator: the index of its slot
// in that process's Table, and the slot's generation. Message headers carry the
// receiver's. The generation tells a late message to a closed communicator from
// one to the communicator that uses the index now.
//
// The generation stands in the upper 12 bits, the index in the lower 20.
// Generation 0 is never used, so that the zero Local is NoLocal.
type Local uint32

// The widths of a Local's parts. They are the same in headers, offers and
// tables (facts/openmpi.md, fault 4: 16 bits in one place and 30 in another).
const (
	IndexBits = 20
	GenBits   = 12

	// MaxGen is the highest generation; the one after it is 1.
	MaxGen = 1<<GenBits - 1
)

// NoLocal is the id of no communicator: not known, or none.
const NoLocal Local = 0

// MakeLocal joins an index below 1<<IndexBits and a generation from 1 to
// MaxGen. Excess bits of either are cut off.
func MakeLocal(index, gen uint32) Local {
	return Local(gen&MaxGen<<IndexBits | index&(1<<IndexBits-1))
}

// Index returns the slot.
func (l Local) Index() uint32 { return uint32(l) & (1<<IndexBits - 1) }

// Gen returns the generation of the slot; 0 only for what is not a valid id.
func (l Local) Gen() uint32 { return uint32(l) >> IndexBits }

// Valid reports whether l can be the id of a communicator: its generation is
// not 0.
func (l Local) Valid() bool { return l.Gen() != 0 }

// String shows index and generation as "17.3".
func (l Local) String() string {
	if l == NoLocal {
		return "none"
	}
	return fmt.Sprintf("%d.%d", l.Index(), l.Gen())
}

// nextGen is the generation after gen; 0 means that there was none.
func nextGen(gen uint32) uint32 { return gen%MaxGen + 1 }
