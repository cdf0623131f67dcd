package ofi

import (
	"fmt"
	"math/bits"

	"github.com/ferrympi/ferry/mtl"
)

// A layout is how communicator id, source and tag become what libfabric matches:
// 64 bits at most, and less with some providers.
//
// With data, the source and the synchronous bit travel as remote completion data,
// which is not matched. A receive from one source matches its address and its endpoint
// instead. The tag is then [id][endpoint][tag]. Otherwise the layout is packed:
// [synchronous][id][source][tag].
type layout struct {
	data                       bool
	cid, endpoint, source, tag int // bits
	ignoreTag                  uint64
	ignoreFrom                 uint64 // bits of the endpoint or of the source
	sync                       uint64 // the bit, in the tag or in the data
}

// What travels as completion data: four bytes, which every provider that has any
// can send.
const (
	dataBytes  = 4
	dataSource = 31 // bits
)

// The narrowest parts that are of use: MPI asks for tags up to 32767 (MPI-4.1
// section 9.1.2), and a communicator has three planes.
const (
	fewestTagBits    = 15
	fewestSourceBits = 10
	fewestCIDBits    = 8
)

// The endpoint uses bits of the id beyond the width that packed layouts of 64 bits have.
const (
	mostEndpointBits = 10
	usualCIDBits     = 22
)

// usable returns the width of the tags that a provider's format leaves: the bits
// from the highest that is set (fi_endpoint(3), mem_tag_format).
func usable(format uint64) int { return bits.Len64(format) }

// newLayout returns the layout for tags of width bits.
func newLayout(width int, data bool) (layout, error) {
	l, bits := layout{data: data}, width
	switch {
	case data:
		// The whole range of a tag, as long as enough communicators remain.
		l.source = dataSource
		l.tag = min(31, max(fewestTagBits, width-17))
		l.cid = min(32, width-l.tag)
		l.endpoint = min(mostEndpointBits, max(0, l.cid-usualCIDBits))
		l.cid -= l.endpoint
	default:
		// 22 bits of id, 18 of source and 23 of tag out of 64.
		width--
		l.source = 18
		if width < 50 {
			l.source = 14
		}
		l.tag = min(31, max(16, width-40))
		l.cid = min(32, width-l.source-l.tag)
	}
	if l.cid < fewestCIDBits {
		return layout{}, fmt.Errorf("its tags have %d bits, too few for communicator, source and tag", bits)
	}
	l.set()
	return l, nil
}

// parseLayout returns the packed layout that text names as "id/source/tag".
func parseLayout(text string, width int) (layout, error) {
	var l layout
	if n, err := fmt.Sscanf(text, "%d/%d/%d", &l.cid, &l.source, &l.tag); n != 3 || err != nil || fmt.Sprintf("%d/%d/%d", l.cid, l.source, l.tag) != text {
		return layout{}, fmt.Errorf("%q is neither auto, data, packed nor widths such as 22/18/23", text)
	}
	switch {
	case l.cid < fewestCIDBits || l.cid > 32 || l.source < fewestSourceBits || l.source > 31 || l.tag < fewestTagBits || l.tag > 31:
		return layout{}, fmt.Errorf("%s: the id may have %d to 32 bits, the source %d to 31, the tag %d to 31", text, fewestCIDBits, fewestSourceBits, fewestTagBits)
	case l.cid+l.source+l.tag+1 > width:
		return layout{}, fmt.Errorf("%s and the bit of synchronous messages do not fit into its tags of %d bits", text, width)
	}
	l.set()
	return l, nil
}

func (l *layout) set() {
	l.ignoreTag = 1<<l.tag - 1
	l.sync, l.ignoreFrom = 1<<dataSource, (1<<l.endpoint-1)<<l.tag
	if !l.data {
		l.ignoreFrom = (1<<l.source - 1) << l.tag
		l.sync = 1 << (l.cid + l.source + l.tag)
	}
}

// rankSetting returns the parameter that makes tags of width bits match ranks.
func (l *layout) rankSetting(width int) mtl.RankSetting {
	packed, err := newLayout(width, false)
	if !l.data || err != nil {
		return mtl.RankSetting{}
	}
	return mtl.RankSetting{Param: "mtl.ofi.layout=packed", CIDBits: packed.cid, SourceBits: packed.source}
}

// String is part of the offer: equal layouts have equal texts.
func (l layout) String() string {
	switch {
	case l.data && l.endpoint > 0:
		return fmt.Sprintf("source in completion data, %d/%d/%d", l.cid, l.endpoint, l.tag)
	case l.data:
		return fmt.Sprintf("source in completion data, %d/%d", l.cid, l.tag)
	}
	return fmt.Sprintf("packed %d/%d/%d", l.cid, l.source, l.tag)
}

// send returns tag and completion data of a message.
func (l *layout) send(e mtl.Envelope, mode mtl.Mode) (tag, data uint64) {
	if l.data {
		tag = (uint64(e.CID)<<l.endpoint|uint64(e.Endpoint))<<l.tag | uint64(uint32(e.Tag))
		data = uint64(uint32(e.Source))
		if mode == mtl.Synchronous {
			data |= l.sync
		}
		return tag, data
	}
	tag = (uint64(e.CID)<<l.source|uint64(uint32(e.Source)))<<l.tag | uint64(uint32(e.Tag))
	if mode == mtl.Synchronous {
		tag |= l.sync
	}
	return tag, 0
}

// receive returns the tag that a receive asks for, and which of its bits may
// differ.
func (l *layout) receive(e mtl.Envelope) (tag, ignore uint64) {
	if e.Tag == mtl.AnyTag {
		e.Tag, ignore = 0, l.ignoreTag
	}
	if e.Source == mtl.AnySource {
		e.Source, e.Endpoint = 0, 0
		ignore |= l.ignoreFrom
	}
	tag, _ = l.send(e, mtl.Standard)
	if !l.data {
		ignore |= l.sync
	}
	return tag, ignore
}

// cidOf returns the id in a tag.
func (l *layout) cidOf(tag uint64) uint32 {
	if l.data {
		return uint32(tag >> (l.endpoint + l.tag))
	}
	return uint32(tag &^ l.sync >> (l.source + l.tag))
}

// message returns what a message said of itself.
func (l *layout) message(tag, data uint64) (e mtl.Envelope, mode mtl.Mode) {
	e.CID, e.Tag = l.cidOf(tag), int32(tag&l.ignoreTag)
	if l.data {
		e.Source, e.Endpoint = int32(data&(1<<dataSource-1)), uint16(tag&l.ignoreFrom>>l.tag)
		tag = data
	} else {
		e.Source = int32(tag & l.ignoreFrom >> l.tag)
	}
	if tag&l.sync != 0 {
		mode = mtl.Synchronous
	}
	return e, mode
}
