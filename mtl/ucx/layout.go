package ucx

import "github.com/ferrympi/ferry/mtl"

// A tag has 64 bits: [control][id][source][tag].
const (
	cidBits    = 22
	sourceBits = 18
	tagBits    = 23

	tagMask    = 1<<tagBits - 1
	sourceMask = (1<<sourceBits - 1) << tagBits

	// controlTag is the complete tag of control messages. No other message has it.
	controlTag = 1 << 63
)

const layoutName = "packed 22/18/23"

func tagOf(e mtl.Envelope) uint64 {
	return (uint64(e.CID)<<sourceBits|uint64(uint32(e.Source)))<<tagBits | uint64(uint32(e.Tag))
}

// matchOf returns the tag of a receive, and the mask of the bits that must match.
func matchOf(e mtl.Envelope) (tag, mask uint64) {
	mask = ^uint64(0)
	if e.Tag == mtl.AnyTag {
		e.Tag = 0
		mask &^= tagMask
	}
	if e.Source == mtl.AnySource {
		e.Source = 0
		mask &^= sourceMask
	}
	return tagOf(e), mask
}

// envelopeOf decodes a tag.
func envelopeOf(tag uint64) mtl.Envelope {
	return mtl.Envelope{
		CID:    uint32(tag >> (sourceBits + tagBits) & (1<<cidBits - 1)),
		Source: int32(tag & sourceMask >> tagBits),
		Tag:    int32(tag & tagMask),
	}
}
