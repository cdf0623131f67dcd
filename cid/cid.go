// Package cid implements communicator ids. A 128-bit extended id names a communicator in the
// whole job, and is derived without a message. A small local id names it in one process and
// travels in message headers. The members of a new communicator agree on a local id, or two
// processes exchange theirs with the first message.
//
// The package is pure code that all PMLs share, without goroutines, input, output or clocks.
// It depends on framework only, and not on transports or communicators. The scheme is that
// of paper 001 (section 3). Ids that are agreed or gathered in advance are future work there
// (section 5).
package cid

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
)

// Extended is the 128-bit extended communicator id (excid). It names one communicator in all
// of its members, and is never reused within a job. The zero Extended names none, because no
// bootstrap assigns the context id 0.
type Extended struct {
	// Base is the context id of the group construct that the communicator, or an
	// ancestor of it, came from.
	Base uint64
	// Sub is the path of derivations from Base. It has Levels fields of 16 bits, the first
	// in the highest bits. A field is the number of a child, from 1. Fields below the
	// communicator's own level are 0.
	Sub uint64
}

// Bytes returns the encoded id, Base and then Sub, both big-endian.
func (e Extended) Bytes() [16]byte {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], e.Base)
	binary.BigEndian.PutUint64(b[8:], e.Sub)
	return b
}

// FromBytes decodes an id that Bytes has encoded. Every value is a well-formed id.
func FromBytes(b [16]byte) Extended {
	return Extended{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

// String returns Base in hexadecimal and the path in decimal, such as "2a", "2a/3" or
// "2a/3/1". Different ids have different strings.
func (e Extended) String() string {
	s := strconv.FormatUint(e.Base, 16)
	for sub := e.Sub; sub != 0; sub <<= levelBits {
		s += "/" + strconv.FormatUint(sub>>(64-levelBits), 10)
	}
	return s
}

// The layout of Extended.Sub.
const (
	// Levels is the number of generations of children that one base has ids for.
	Levels = 4
	// MaxChildren is the number of children that a communicator derives from one base.
	MaxChildren = 1<<levelBits - 1

	levelBits = 64 / Levels
)

// ErrExhausted means that a communicator has no child ids left, because it has had
// MaxChildren of them or is on the last level. All members get it in the same call. They
// construct a group for a new base and call Rebase. Users never see it.
var ErrExhausted = errors.New("cid: no child ids left in this base")

// A Deriver assigns the ids of one communicator's children. Each member has its own, and no
// message is exchanged. Creating communicators is collective and ordered for each
// communicator (MPI-4.1 section 7.4), so that all members make the same calls in the same
// order and get the same ids. A communicator has one Deriver for its whole lifetime. A second
// one would repeat the ids.
//
// It is not safe for concurrent use. The zero Deriver is always exhausted.
type Deriver struct {
	parentID Extended
	// fieldShift is the position of the children's field in Sub.
	fieldShift   uint8
	remainingIDs uint32
}

// NewDeriver returns the deriver of the communicator with this id.
func NewDeriver(id Extended) Deriver {
	if id.Sub == 0 {
		return Deriver{id, 64 - levelBits, MaxChildren}
	}
	// The children's field is the one below the lowest field in use.
	level := bits.TrailingZeros64(id.Sub) / levelBits
	if level == 0 {
		return Deriver{parentID: id}
	}
	return Deriver{id, uint8((level - 1) * levelBits), MaxChildren}
}

// Next returns the ids of the next n children. A dup needs one id, and a split one for each
// color. It returns all n or ErrExhausted, which consumes none.
func (d *Deriver) Next(n int) ([]Extended, error) {
	if n < 0 {
		return nil, fmt.Errorf("cid: %d children asked for", n)
	}
	if n > d.Remaining() {
		return nil, fmt.Errorf("%w: %d asked for, %d left below %v", ErrExhausted, n, d.remainingIDs, d.parentID)
	}
	ids := make([]Extended, n)
	for i := range ids {
		child := uint64(MaxChildren - d.remainingIDs + 1)
		ids[i] = Extended{d.parentID.Base, d.parentID.Sub | child<<d.fieldShift}
		d.remainingIDs--
	}
	return ids, nil
}

// Remaining returns the number of ids that Next can return before ErrExhausted. A split with more
// colors than MaxChildren uses the remaining ids, rebases, and continues.
func (d *Deriver) Remaining() int { return int(d.remainingIDs) }

// Rebase makes d derive ids from base, a context id that a group construct of all members has
// just assigned for this purpose. It has MaxChildren further children, each with all levels
// below it, so that one construct serves many creations. No communicator may have the id base
// itself, because its children would get the same ids.
func (d *Deriver) Rebase(base uint64) { *d = NewDeriver(Extended{Base: base}) }
