// Package strictcbor is CBOR as ferry's processes exchange it. What comes from another
// process is read strictly: definite lengths, no tags, nothing nested deeper than a
// list in a part of a message, and lists of a bounded length.
package strictcbor

import "github.com/fxamacker/cbor/v2"

// Codec encodes, and decodes strictly. It is safe for concurrent use.
type Codec struct {
	cbor.EncMode
	cbor.DecMode
}

// New returns a codec that reads lists of at most so many elements, and texts as utf8
// says.
func New(elements int, utf8 cbor.UTF8Mode) Codec {
	enc, err := cbor.EncOptions{NilContainers: cbor.NilContainerAsEmpty}.EncMode()
	if err != nil {
		panic(err) // the options are constants
	}
	dec, err := cbor.DecOptions{
		DupMapKey:        cbor.DupMapKeyEnforcedAPF,
		IndefLength:      cbor.IndefLengthForbidden,
		TagsMd:           cbor.TagsForbidden,
		MaxNestedLevels:  4, // message, part, list, element; also the library's minimum
		MaxArrayElements: elements,
		MaxMapPairs:      16, // the library's minimum; no message has maps
		UTF8:             utf8,
	}.DecMode()
	if err != nil {
		panic(err)
	}
	return Codec{enc, dec}
}
