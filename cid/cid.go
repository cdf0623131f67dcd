// Package cid is about communicator ids: the 128-bit extended ids that name a
// communicator in the whole job and how they are derived without a message, the
// small local ids that travel in message headers, how the members of a new
// communicator agree on one, and the exchange by which two processes learn each
// other's when they did not.
//
// It is pure code that every PML shares: no goroutines, no input or output, no
// clock. It stands on framework alone and knows neither transports nor
// communicators. The scheme is paper 001's (section 3), with what its section 5
// leaves as future work: ids known in advance by agreement, or gathered.
package cid

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
)

// Extended is the 128-bit extended communicator id (excid). It names one
// communicator in all its members, and is never given to a second one within a
// job. The zero Extended names none, because a bootstrap never hands out the
// context id 0.
type Extended struct {
	// Base is the context id of the group construct that the communicator, or
	// an ancestor of it, came from.
	Base uint64
	// Sub is the path of derivations from Base: Levels fields of 16 bits, the
	// first in the highest bits. A field is the number of a child, from 1;
	// fields below the communicator's own level are 0.
	Sub uint64
}

// Bytes returns the id as it travels: Base, then Sub, both big-endian.
func (e Extended) Bytes() [16]byte {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], e.Base)
	binary.BigEndian.PutUint64(b[8:], e.Sub)
	return b
}

// FromBytes is the inverse of Bytes. Every value is a well-formed id.
func FromBytes(b [16]byte) Extended {
	return Extended{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

// String shows Base in hexadecimal and the path in decimal: "2a", "2a/3",
// "2a/3/1". Different ids have different strings.
func (e Extended) String() string {
	s := strconv.FormatUint(e.Base, 16)
	for sub := e.Sub; sub != 0; sub <<= levelBits {
		s += "/" + strconv.FormatUint(sub>>(64-levelBits), 10)
	}
	return s
}

// The shape of Extended.Sub.
const (
	// Levels is how many generations of children one base serves.
	Levels = 4
	// MaxChildren is how many children a communicator derives from one base.
	MaxChildren = 1<<levelBits - 1

	levelBits = 64 / Levels
)

// ErrExhausted says that a communicator has no child ids left: it has had
// MaxChildren of them, or stands on the last level. It reaches all members in
// the same call. They then draw a new base by a group construct and give it to
// Rebase. Users never see it.
var ErrExhausted = errors.New("cid: no child ids left in this base")

// A Deriver gives out the ids of one communicator's children. Each member has
// its own, and no message passes: creating communicators is collective and
// ordered per communicator (MPI-4.1 section 7.4), so that all members make the
// same calls in the same order and get the same ids. A communicator has one
// Deriver for its whole life; a second one would repeat the ids.
//
// It is not safe for concurrent use. The zero Deriver is always exhausted.
type Deriver struct {
	parent Extended
	shift  uint8  // where the children's field begins in Sub
	left   uint32 // children not given out yet
}

// NewDeriver returns the deriver of the communicator named id.
func NewDeriver(id Extended) Deriver {
	if id.Sub == 0 {
		return Deriver{id, 64 - levelBits, MaxChildren}
	}
	// The children's field is the one below the lowest that is in use.
	level := bits.TrailingZeros64(id.Sub) / levelBits
	if level == 0 {
		return Deriver{parent: id}
	}
	return Deriver{id, uint8((level - 1) * levelBits), MaxChildren}
}

// Next returns the ids of the next n children: dup takes one, split one for
// each colour. It gives all n or none: on ErrExhausted nothing is used up.
func (d *Deriver) Next(n int) ([]Extended, error) {
	if n < 0 {
		return nil, fmt.Errorf("cid: %d children asked for", n)
	}
	if n > d.Left() {
		return nil, fmt.Errorf("%w: %d asked for, %d left below %v", ErrExhausted, n, d.left, d.parent)
	}
	ids := make([]Extended, n)
	for i := range ids {
		child := uint64(MaxChildren - d.left + 1)
		ids[i] = Extended{d.parent.Base, d.parent.Sub | child<<d.shift}
		d.left--
	}
	return ids, nil
}

// Left is how many more children Next can give before ErrExhausted. A split
// with more colours than MaxChildren takes what is left, rebases, and goes on.
func (d *Deriver) Left() int { return int(d.left) }

// Rebase makes d go on below base, a context id that a group construct over
// all members has just drawn for this purpose: MaxChildren further children,
// each with all the levels below it. One construct thus serves many creations.
// base must not name a communicator of its own, because that communicator's
// children would get the same ids.
func (d *Deriver) Rebase(base uint64) { *d = NewDeriver(Extended{Base: base}) }
