// Package cm is the PML that runs over any MTL: the network matches messages with
// receives, often in hardware, and cm names communicators to it (paper 001).
//
// # Ids
//
// What a network matches has room for a small id only, and a communicator's name
// has 128 bits. A message goes out under the receiver's own id of the communicator:
// plane, index, and as much of the generation as the layout has room for. Where the
// members agreed on one id, or gathered all (package cid), nothing has to be asked.
// Otherwise the first send to a member asks for his, in a control message that
// names the communicator in full and tells the own id. Sends wait in cm meanwhile,
// no caller does, and they leave in their order when the answer comes. A receiver
// asks nothing: receives from any source, and members that all send first, need
// nothing more. A question about a communicator that is not there yet waits until it
// is (early_arrivals.go). docs/wire.md has the control messages; they name a number that only members
// of the job know, so that a stranger's are dropped.
//
// A process may have several ranks of a communicator (pml.Member). Each has an id of its own. A
// network that matches the process of a source matches its endpoint too, as far as it has
// bits for that (endpoints.go).
//
// # Messages in the network
//
// A message that was given to the network is out of cm's hands: its send can't be
// withdrawn (pml.PendingError), and until a receive takes it nobody here knows of
// it. Four things look for messages nevertheless, each by probes that claim:
//
//   - What a process that has left has sent is taken out (pull.go), into unexpected
//     queues that receives look through first. What was taken is the first that its
//     sender has sent and that nobody has received, so that the order stays.
//   - A receive from a process that has failed looks once for what had been sent
//     before. A message of which the sender still had some is lost (mtl.Caps.Eager): it
//     is found like others, and who receives it gets the failure.
//   - After the death of a member, receives from any source wait in cm, and sweeps find their messages (sweep.go).
//     The network has no receive that could match a half-sent message of the dead process.
//   - The reaper finds what was sent to communicators that are closed here, drops
//     and counts it, so that its senders complete and the id can be used again
//     (close.go; cid.Rest says when). Synchronous sends of such messages fail
//     (unwanted.go).
//
// # Long messages
//
// What is longer than the network takes travels in parts, behind a head that is matched in
// its place (long.go). It asks for the parts by control messages.
//
// # Who goes
//
// A process that closes its last session says goodbye (leave.go). One that dies is
// reported by the bootstrap; what the network has failed before waits for that word
// (doubt.go).
//
// # Shared memory
//
// Between processes of a node messages may be another PML's: cm requires one
// (pml.cm.shared_memory), the assembly composes the two (pml/compose), and a
// communicator says which members are not cm's (pml.CommSpec.Elsewhere).
//
// # Buffers
//
// A message is received straight into its buffer, unless that has a layout: then it
// is packed and unpacked by way of a buffer of the request's own.
//
// Everything is guarded by the progress engine's lock. Methods whose comment says
// "lock held" are called with it.
package cm
