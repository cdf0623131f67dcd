package ob1

import (
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/pml/ob1/selector"
)

// rendezvous is the state of a request between its RTS and its end.
type rendezvous struct {
	// remote describes the peer's buffer. A receive reads from it, and a send writes to it.
	remote btl.Remote
	reader btl.RemoteReader

	pattern pattern
	// crossedSend is the handle of the send that the message of a receive crosses.
	crossedSend uint64

	// The following fields belong to receives (rndv_schedule.go).

	protocol selector.Protocol
	// possible is empty until planReceive.
	possible  selector.Set
	selection *selection
	// isInFlight is set while the message counts in largeReceives.inFlight.
	isInFlight bool
	// nextProtocol is the protocol planned for the next message of the kind.
	nextProtocol selector.Protocol
	// isTimeInvalid is set if the message must not be measured.
	isTimeInvalid bool
	// followsAnother is set if the measured time begins with the end of the message before.
	// Otherwise it begins at busySince.
	followsAnother bool
	busySince      time.Duration
	// fragmentTime is the time that the copy of the first fragment has consumed.
	fragmentTime time.Duration
	// fragment came with the RTS and is not copied yet. It is memory of the BTL, or of the
	// unexpected message.
	fragment []byte
	// share is the part of the buffer into which the sender may write, and copyBase its offset in
	// the message.
	share    btl.Share
	copyBase int64
	// chunkOffset and chunkLeft are the rest of the chunk that is being copied.
	chunkOffset int64
	chunkLeft   int
	// usePipelineNext is set if the pipeline continues the message after its share has ended.
	usePipelineNext bool

	// The following fields belong to sends.

	// packMode applies to the fragments.
	packMode packMode
	// memory is the kind of memory of the buffer, as the RTS describes it.
	memory btl.Memory
	// isDescribed is set if the RTS has a description of the buffer.
	isDescribed bool
	// canPut is set if the RTS announces that this process can write into the receiver's memory.
	canPut bool
}

// beginRendezvous clears the state for a new RTS.
func (r *request) beginRendezvous() {
	if r.rndv == nil {
		r.rndv = new(rendezvous)
		return
	}
	*r.rndv = rendezvous{}
}
