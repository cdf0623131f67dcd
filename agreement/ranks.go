package agreement

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"
)

// Ranks are ascending ranks of a communicator. Their encoding is the shorter one of runs and a bitmap, so that a message
// with many failed ranks fits into a note.
type Ranks []int

// Forms of an encoding, its first byte. No ranks are no bytes.
const (
	formRuns   byte = iota + 1 // For each run, the gap after the previous one and the length, both as uvarint.
	formBitmap                 // The first rank as uvarint, and a bitmap from that rank on.
)

// MarshalBinary implements encoding.BinaryMarshaler.
func (r Ranks) MarshalBinary() ([]byte, error) {
	if len(r) == 0 {
		return []byte{}, nil
	}
	bitmapSize := (r[len(r)-1]-r[0])/8 + 1
	b := []byte{formRuns}
	next := 0 // The rank after the previous run.
	for i := 0; i < len(r); {
		n := 1
		for i+n < len(r) && r[i+n] == r[i]+n {
			n++
		}
		b = binary.AppendUvarint(b, uint64(r[i]-next))
		b = binary.AppendUvarint(b, uint64(n))
		if next = r[i] + n; len(b) > binary.MaxVarintLen32+bitmapSize {
			return r.bitmap(bitmapSize), nil
		}
		i += n
	}
	return b, nil
}

func (r Ranks) bitmap(size int) []byte {
	b := binary.AppendUvarint([]byte{formBitmap}, uint64(r[0]))
	at := len(b)
	b = append(b, make([]byte, size)...)
	for _, rank := range r {
		i := rank - r[0]
		b[at+i/8] |= 1 << (i % 8)
	}
	return b
}

var errRanks = errors.New("malformed list of ranks")

// UnmarshalBinary implements encoding.BinaryUnmarshaler. It accepts no other encoding than that of MarshalBinary.
func (r *Ranks) UnmarshalBinary(b []byte) error {
	*r = nil
	var err error
	switch {
	case len(b) == 0:
		return nil
	case b[0] == formRuns:
		*r, err = decodeRuns(b[1:])
	case b[0] == formBitmap:
		*r, err = decodeBitmap(b[1:])
	default:
		return errRanks
	}
	if err != nil {
		return err
	}
	if again, _ := r.MarshalBinary(); !bytes.Equal(again, b) {
		return errRanks
	}
	return nil
}

func decodeRuns(b []byte) (r Ranks, err error) {
	next := 0
	for len(b) > 0 {
		gap, i := binary.Uvarint(b)
		length, j := binary.Uvarint(b[max(i, 0):])
		if i <= 0 || j <= 0 || gap >= maxMembers || length > maxMembers || next+int(gap)+int(length) > maxMembers {
			return nil, errRanks
		}
		next += int(gap)
		for range length {
			r = append(r, next)
			next++
		}
		b = b[i+j:]
	}
	return r, nil
}

func decodeBitmap(b []byte) (r Ranks, err error) {
	first, n := binary.Uvarint(b)
	if n <= 0 || first >= maxMembers || 8*(len(b)-n) > maxMembers {
		return nil, errRanks
	}
	for i, set := range b[n:] {
		for ; set != 0; set &= set - 1 {
			r = append(r, int(first)+8*i+bits.TrailingZeros8(set))
		}
	}
	return r, nil
}

// without returns the ranks that other lacks.
func (r Ranks) without(other Ranks) (rest Ranks) {
	for _, rank := range r {
		for len(other) > 0 && other[0] < rank {
			other = other[1:]
		}
		if len(other) == 0 || other[0] != rank {
			rest = append(rest, rank)
		}
	}
	return rest
}
