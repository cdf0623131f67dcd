package cm

import (
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/pml"
)

// Pull takes a member's messages out of the network, as when it has left, and returns at
// the end of the pulls.
func Pull(m pml.Module, rank int) {
	cm := m.(*Module)
	cm.engine.Lock()
	defer cm.engine.Unlock()
	for _, c := range cm.comms.ByID {
		for plane := range pml.Plane(pml.Planes) {
			c.pull(plane, c.peer(rank))
		}
	}
	for cm.pulls > 0 {
		cm.awaitPull(nil)
	}
}

// SetMostVain changes how many searches for missing messages may find nothing more, and
// returns what undoes it.
func SetMostVain(n int) (undo func()) { return set(&mostVain, n) }

// SetDoubtSteps changes for how long the bootstrap's word is waited for, and returns
// what undoes it.
func SetDoubtSteps(n int) (undo func()) { return set(&doubtSteps, n) }

func set(v *int, n int) (undo func()) {
	old := *v
	*v = n
	return func() { *v = old }
}

// Head is what stands for the number-th message of total bytes from one process to
// another, which comes in parts.
func Head(to, from uint64, number, total uint64) []byte {
	h := head{to: to, from: from, number: number, total: total, part: 1}
	return h.put(nil)
}

// HeadSize is the length of a head, in bytes.
const HeadSize = headSize

// Refused is the control message by which a member says that it is not in a communicator, and
// Reply the one that tells its id of it.
func Refused(to, from uint64, id cid.Extended, rank int) []byte {
	return encode(control{typ: controlRefused, to: to, from: from, id: cid.EndpointID{Extended: id}, rank: uint32(rank)})
}

func Reply(to, from uint64, id cid.Extended, rank int, local cid.Local) []byte {
	return encode(control{typ: controlReply, to: to, from: from, id: cid.EndpointID{Extended: id}, rank: uint32(rank), local: local})
}

func encode(f control) []byte {
	b := make([]byte, controlSize)
	f.put(b)
	return b
}
