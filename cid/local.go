package cid

import "fmt"

// Local is a process's own id of a communicator. It has the index of a slot in the process's
// Table, and the slot's generation. Message headers carry the receiver's Local. The generation
// distinguishes a late message to a closed communicator from one to the present user of the
// index.
//
// The generation has the upper 12 bits and the index the lower 20. Generation 0 is never
// used, so that the zero Local is NoLocal.
type Local uint32

// The widths of a Local's fields. They are the same in headers, candidate ids and tables
// (facts/openmpi.md, fault 4 has 16 bits in one place and 30 in another).
const (
	IndexBits = 20
	GenBits   = 12

	// MaxGen is the highest generation; the one after it is 1.
	MaxGen = 1<<GenBits - 1
)

// NoLocal names no communicator. It also stands for an unknown id.
const NoLocal Local = 0

// MakeLocal joins an index below 1<<IndexBits and a generation from 1 to MaxGen. It ignores
// excess bits.
func MakeLocal(index, gen uint32) Local {
	return Local(gen&MaxGen<<IndexBits | index&(1<<IndexBits-1))
}

// Index returns the index of the slot.
func (l Local) Index() uint32 { return uint32(l) & (1<<IndexBits - 1) }

// Gen returns the generation of the slot. It is 0 only for invalid ids.
func (l Local) Gen() uint32 { return uint32(l) >> IndexBits }

// Valid reports whether the generation is not 0, so that l can name a communicator.
func (l Local) Valid() bool { return l.Gen() != 0 }

// String returns index and generation, such as "17.3".
func (l Local) String() string {
	if l == NoLocal {
		return "none"
	}
	return fmt.Sprintf("%d.%d", l.Index(), l.Gen())
}

// nextGen returns the generation after gen, where 0 stands for none.
func nextGen(gen uint32) uint32 { return gen%MaxGen + 1 }
