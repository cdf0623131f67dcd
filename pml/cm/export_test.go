package cm

import (
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/pml"
)

// Pull takes a member's messages out of the network, as after its goodbye, and returns at
// the end of the pulls.
func Pull(m pml.Module, rank int) {
	cm := m.(*Module)
	cm.engine.Lock()
	defer cm.engine.Unlock()
	for _, c := range cm.comms.ByID {
		for plane := range pml.Plane(pml.Planes) {
			c.startPull(plane, c.peer(rank))
		}
	}
	for cm.activePulls > 0 {
		cm.awaitPull(nil)
	}
}

// SetMaxFruitlessSearches changes maxFruitlessSearches and returns a function that restores it.
func SetMaxFruitlessSearches(n int) (undo func()) { return set(&maxFruitlessSearches, n) }

// SetDoubtSteps changes doubtSteps and returns a function that restores it.
func SetDoubtSteps(n int) (undo func()) { return set(&doubtSteps, n) }

func set(v *int, n int) (undo func()) {
	old := *v
	*v = n
	return func() { *v = old }
}

// RTS returns the RTS of message number of total bytes from one process to another.
func RTS(to, from uint64, number, total uint64) []byte {
	h := rts{receiverNonce: to, senderNonce: from, messageNumber: number, messageBytes: total, maxFragment: 1}
	return h.encode(nil)
}

// RTSSize is the size of an RTS in bytes.
const RTSSize = rtsSize

// Refused is the type of the control message with which a member refuses a communicator, and
// Reply the type of the one with its id.
func Refused(to, from uint64, id cid.Extended, rank int) []byte {
	return encode(control{typ: controlRefused, receiverNonce: to, senderNonce: from, receiverHandle: cid.EndpointID{Extended: id}, senderRank: uint32(rank)})
}

func Reply(to, from uint64, id cid.Extended, rank int, local cid.Local) []byte {
	return encode(control{typ: controlReply, receiverNonce: to, senderNonce: from, receiverHandle: cid.EndpointID{Extended: id}, senderRank: uint32(rank), local: local})
}

func encode(f control) []byte {
	b := make([]byte, controlSize)
	f.encode(b)
	return b
}
