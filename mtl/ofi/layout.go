package ofi

import (
	"fmt"
	"math/bits"

	"github.com/ferrympi/ferry/mtl"
)

// A layout encodes communicator id, source and tag into the tag that libfabric matches, which has 64 bits or, with
// some providers, fewer.
//
// With hasSourceData the source and the synchronous bit are remote completion data, which libfabric does not match. A
// receive from one source matches its address and its endpoint instead. The tag is [id][endpoint][tag]. Otherwise
// the layout is packed: [synchronous][id][source][tag].
type layout struct {
	hasSourceData                              bool
	cidBits, endpointBits, sourceBits, tagBits int
	// ignoreTag masks the tag.
	ignoreTag uint64
	// ignoreSource masks the source or, with hasSourceData, the endpoint.
	ignoreSource uint64
	// syncBit marks a synchronous message, in the tag or in the completion data.
	syncBit uint64
}

// Every provider with completion data supports at least four bytes.
const (
	dataBytes  = 4
	dataSource = 31 // bits
)

// The minimal widths: MPI requires tags up to 32767 (MPI-4.1 section 9.1.2), and a communicator has three
// planes.
const (
	minTagBits    = 15
	minSourceBits = 10
	minCIDBits    = 8
)

// The endpoint takes bits that the id does not need: packed layouts of 64 bits have an id of usualCIDBits.
const (
	maxEndpointBits = 10
	usualCIDBits    = 22
)

// tagWidth returns the number of tag bits of a provider, from the highest bit set in its mem_tag_format
// (fi_endpoint(3)).
func tagWidth(format uint64) int { return bits.Len64(format) }

// newLayout returns the layout for tags of width bits.
func newLayout(width int, data bool) (layout, error) {
	l, bits := layout{hasSourceData: data}, width
	switch {
	case data:
		// Tags have their full range as long as enough ids remain.
		l.sourceBits = dataSource
		l.tagBits = min(31, max(minTagBits, width-17))
		l.cidBits = min(32, width-l.tagBits)
		l.endpointBits = min(maxEndpointBits, max(0, l.cidBits-usualCIDBits))
		l.cidBits -= l.endpointBits
	default:
		// 22 bits of id, 18 of source and 23 of tag out of 64.
		width--
		l.sourceBits = 18
		if width < 50 {
			l.sourceBits = 14
		}
		l.tagBits = min(31, max(16, width-40))
		l.cidBits = min(32, width-l.sourceBits-l.tagBits)
	}
	if l.cidBits < minCIDBits {
		return layout{}, fmt.Errorf("its tags have %d bits, too few for communicator, source and tag", bits)
	}
	l.setMasks()
	return l, nil
}

// parseLayout parses a packed layout of the form "id/source/tag".
func parseLayout(text string, width int) (layout, error) {
	var l layout
	if n, err := fmt.Sscanf(text, "%d/%d/%d", &l.cidBits, &l.sourceBits, &l.tagBits); n != 3 || err != nil || fmt.Sprintf("%d/%d/%d", l.cidBits, l.sourceBits, l.tagBits) != text {
		return layout{}, fmt.Errorf("%q is neither auto, data, packed nor widths such as 22/18/23", text)
	}
	switch {
	case l.cidBits < minCIDBits || l.cidBits > 32 || l.sourceBits < minSourceBits || l.sourceBits > 31 || l.tagBits < minTagBits || l.tagBits > 31:
		return layout{}, fmt.Errorf("%s: the id may have %d to 32 bits, the source %d to 31, the tag %d to 31", text, minCIDBits, minSourceBits, minTagBits)
	case l.cidBits+l.sourceBits+l.tagBits+1 > width:
		return layout{}, fmt.Errorf("%s and the bit of synchronous messages do not fit into its tags of %d bits", text, width)
	}
	l.setMasks()
	return l, nil
}

func (l *layout) setMasks() {
	l.ignoreTag = 1<<l.tagBits - 1
	l.syncBit, l.ignoreSource = 1<<dataSource, (1<<l.endpointBits-1)<<l.tagBits
	if !l.hasSourceData {
		l.ignoreSource = (1<<l.sourceBits - 1) << l.tagBits
		l.syncBit = 1 << (l.cidBits + l.sourceBits + l.tagBits)
	}
}

// rankSetting returns the parameter that switches to matching by rank, for tags of width bits.
func (l *layout) rankSetting(width int) mtl.RankSetting {
	packed, err := newLayout(width, false)
	if !l.hasSourceData || err != nil {
		return mtl.RankSetting{}
	}
	return mtl.RankSetting{Param: "mtl.ofi.layout=packed", CIDBits: packed.cidBits, SourceBits: packed.sourceBits}
}

// String returns equal texts for equal layouts. It is a part of the offer.
func (l layout) String() string {
	switch {
	case l.hasSourceData && l.endpointBits > 0:
		return fmt.Sprintf("source in completion data, %d/%d/%d", l.cidBits, l.endpointBits, l.tagBits)
	case l.hasSourceData:
		return fmt.Sprintf("source in completion data, %d/%d", l.cidBits, l.tagBits)
	}
	return fmt.Sprintf("packed %d/%d/%d", l.cidBits, l.sourceBits, l.tagBits)
}

// send returns the tag and the completion data of a message.
func (l *layout) send(e mtl.Envelope, mode mtl.Mode) (tag, data uint64) {
	if l.hasSourceData {
		tag = (uint64(e.CID)<<l.endpointBits|uint64(e.Endpoint))<<l.tagBits | uint64(uint32(e.Tag))
		data = uint64(uint32(e.Source))
		if mode == mtl.Synchronous {
			data |= l.syncBit
		}
		return tag, data
	}
	tag = (uint64(e.CID)<<l.sourceBits|uint64(uint32(e.Source)))<<l.tagBits | uint64(uint32(e.Tag))
	if mode == mtl.Synchronous {
		tag |= l.syncBit
	}
	return tag, 0
}

// receive returns the tag of a receive, and the mask of the bits that it ignores.
func (l *layout) receive(e mtl.Envelope) (tag, ignore uint64) {
	if e.Tag == mtl.AnyTag {
		e.Tag, ignore = 0, l.ignoreTag
	}
	if e.Source == mtl.AnySource {
		e.Source, e.Endpoint = 0, 0
		ignore |= l.ignoreSource
	}
	tag, _ = l.send(e, mtl.Standard)
	if !l.hasSourceData {
		ignore |= l.syncBit
	}
	return tag, ignore
}

// cidOf returns the communicator id in a tag.
func (l *layout) cidOf(tag uint64) uint32 {
	if l.hasSourceData {
		return uint32(tag >> (l.endpointBits + l.tagBits))
	}
	return uint32(tag &^ l.syncBit >> (l.sourceBits + l.tagBits))
}

// message decodes the tag and the completion data of a message.
func (l *layout) message(tag, data uint64) (e mtl.Envelope, mode mtl.Mode) {
	e.CID, e.Tag = l.cidOf(tag), int32(tag&l.ignoreTag)
	if l.hasSourceData {
		e.Source, e.Endpoint = int32(data&(1<<dataSource-1)), uint16(tag&l.ignoreSource>>l.tagBits)
		tag = data
	} else {
		e.Source = int32(tag & l.ignoreSource >> l.tagBits)
	}
	if tag&l.syncBit != 0 {
		mode = mtl.Synchronous
	}
	return e, mode
}
