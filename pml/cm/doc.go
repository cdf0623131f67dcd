// Package cm is the PML over an MTL, on networks that match messages with receives,
// often in hardware. cm assigns the communicator ids that the network matches (paper 001).
//
// # Ids
//
// A network matches a small id, and the extended id of a communicator has 128 bits. A
// message therefore carries the receiver's own id of the communicator, with plane, index,
// and as many bits of the generation as the layout allows. If the members agreed on one id,
// or gathered all ids (package cid), the sender knows it. Otherwise the first send to a
// member sends a request, a control message with the extended id and the sender's own id.
// Sends are held in cm until the reply comes, and then leave in order. They never block
// their callers. Receives from any source, and members that all send first, need no
// further messages. A request for a communicator that does not exist here yet is an early
// arrival (early_arrivals.go). docs/wire.md describes the control messages. They carry a
// nonce that only members of the job know, and others are dropped.
//
// A process may have several ranks of a communicator (pml.Member), each with an id of its
// own. A network that matches the source process also matches its endpoint, as far as the
// tag format has bits for it (endpoints.go).
//
// # Messages in the network
//
// A send cannot be withdrawn once the network has its message (pml.PendingError). The
// receiver learns of a message only by a receive or a probe. Four mechanisms claim
// messages with probes:
//
//   - A pull takes the messages of a process that has left out of the network, into
//     unexpected queues that receives search first (pull.go). Each pulled message is the
//     oldest unreceived one of its sender, so that order is kept.
//   - A receive from a process that has failed probes once for a message that was sent
//     before the failure. If the sender still had a part of the message (mtl.Caps.Eager),
//     the message is lost, and its receive returns the failure.
//   - After the failure of a member, receives from any source are deferred, and sweeps
//     find their messages (sweep.go). The network must not match such a receive with a
//     message of which the failed process has sent a part.
//   - The reaper claims, counts and drops messages to communicators that are closed here,
//     so that their senders complete and the index becomes free (close.go, cid.CommClose).
//     Synchronous sends of such messages fail (unreceived.go).
//
// # Long messages
//
// Messages above the network's limit use a rendezvous protocol. An RTS is matched in place
// of the message, which follows in fragments (rendezvous.go).
//
// # Departures
//
// A process that closes its last session sends goodbyes (leave.go). The bootstrap reports
// processes that fail. An operation that the network fails before that waits for the
// report (doubt.go).
//
// # Shared memory
//
// Messages between processes of a node may use another PML, which cm requires if
// pml.cm.shared_memory is set. The assembly composes the two PMLs (pml/compose), and
// pml.CommSpec.Elsewhere has the members that cm does not serve.
//
// # Buffers
//
// The network receives into the user's buffer. For a buffer with a layout, and for one that
// is shorter than an RTS, the request has a bounce buffer.
//
// # Locking
//
// The progress engine's lock guards all state. Functions whose comment says "Lock held"
// require it.
package cm
