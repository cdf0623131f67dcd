package ob1

import "github.com/ferrympi/ferry/pml/ob1/selector"

// packMode is how a sender copies fragments into the ring. The receiver advises it in byte 1
// of a CTS. Bits 0 and 1 are for the fragment of the next RTS of the kind, bits 2 and 3 for
// the rest of this message.
type packMode uint8

const (
	// packCached uses a small part of the ring, which the caches hold.
	packCached packMode = iota
	// packNone sends no fragment with the RTS, since the message will be copied between the processes.
	packNone
	// packFull uses the whole ring.
	packFull
	// packNT uses non-temporal stores.
	packNT
)

// packModeOf returns the mode for messages by a protocol.
func packModeOf(p selector.Protocol) packMode {
	switch p {
	case selector.Pipeline:
		return packCached
	case selector.PipelineFull:
		return packFull
	case selector.PipelineNT:
		return packNT
	}
	return packNone
}

// addAdvice adds the modes of this message and of the next one of its kind to a CTS.
func (r *request) addAdvice(cts *controlFrame) {
	x := r.rndv
	if x.isInFlight {
		cts.bytes[1] = byte(packModeOf(x.nextProtocol) | packModeOf(x.protocol)<<2)
	}
}

// applyAdvice applies the advice of a CTS to a send.
func (r *request) applyAdvice(b byte) {
	x := r.rndv
	x.packMode = packMode(b >> 2 & 3)
	if x.isDescribed && r.p.proc.outTransport != nil && r.p.proc.outTransport.copier != nil {
		*r.p.proc.adviceFor(r) = advice{packMode(b & 3), adviceUses}
	}
}

// advice is the receiver's advice for the next message of a kind.
type advice struct {
	mode packMode
	// usesLeft is the number of crossing receives that may still follow the advice.
	usesLeft uint8
}

// adviceUses is the number of crossing receives that may follow one advice.
const adviceUses = 64

// adviceFor returns the advice for a described message. Lock held.
func (p *proc) adviceFor(r *request) *advice {
	return &p.outgoing.packAdvice[r.rndv.memory][r.rndv.pattern][classOf(int64(len(r.buf.Bytes)))]
}
