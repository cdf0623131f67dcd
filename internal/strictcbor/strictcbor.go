// Package strictcbor encodes and decodes the CBOR messages between ferry's processes. It accepts
// only definite lengths, no tags, no nesting below the elements of a list in a part of a message,
// and lists of a limited length.
package strictcbor

import "github.com/fxamacker/cbor/v2"

// Codec is an encoder with a strict decoder. It is safe for concurrent use.
type Codec struct {
	cbor.EncMode
	cbor.DecMode
}

// New returns a codec that accepts lists of at most that many elements. utf8 is its mode for
// texts.
func New(elements int, utf8 cbor.UTF8Mode) Codec {
	enc, err := cbor.EncOptions{NilContainers: cbor.NilContainerAsEmpty}.EncMode()
	if err != nil {
		panic(err) // The options are constants.
	}
	dec, err := cbor.DecOptions{
		DupMapKey:        cbor.DupMapKeyEnforcedAPF,
		IndefLength:      cbor.IndefLengthForbidden,
		TagsMd:           cbor.TagsForbidden,
		MaxNestedLevels:  4, // Message, part, list and element. It is also the minimum of the library.
		MaxArrayElements: elements,
		MaxMapPairs:      16, // The minimum of the library. No message has maps.
		UTF8:             utf8,
	}.DecMode()
	if err != nil {
		panic(err)
	}
	return Codec{enc, dec}
}
