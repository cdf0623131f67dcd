// Package agreement is the protocol of Agree and Shrink. The live members of a communicator agree on one outcome although members fail. It has the
// bitwise AND of their flags, the failed ranks, and, for Shrink, the id of the new communicator (MPIX_Comm_agree and MPIX_Comm_shrink of ULFM).
//
// It is pure logic without lock, clock or connection. A Machine belongs to one member of one
// communicator. Its inputs are calls, messages, failures and ticks. Each input returns after
// it has queued messages, which the caller takes from Machine.Take and sends to one rank
// each. Messages may be lost, duplicated, delayed and reordered.
//
// # Instances
//
// Members call in one order, and number their calls from 0. An instance is decided at a
// member when the member holds the outcome, and so do all live members.
//
// # Protocol
//
// The coordinator of an instance is the lowest live rank, in the view of each member.
//
//  1. The coordinator sends Ask. Members that have called send Contribute with their
//     flags, the failed ranks and the acknowledged ranks. A member that has called sends it
//     without being asked.
//  2. When the contributions of all live members have arrived, the coordinator sends
//     Propose with the outcome. Members hold the outcome and send Ack.
//  3. When all live members have acknowledged, the coordinator decides and sends Decided.
//     Members decide by the outcome that they hold.
//
// When a coordinator fails, the next one begins with step 1. A message names its coordinator
// by a ballot, which is that rank plus one. A contribution carries the outcome that the member
// holds, with the ballot of its proposal, and a coordinator proposes the held outcome of the
// highest ballot instead of a new one. A member that has contributed to a coordinator ignores
// proposals of lower ranks.
//
// # Uniformity
//
// When a coordinator decides, all live members hold its outcome. Each later coordinator waits
// for the contributions of all live members, and therefore proposes the same outcome. No
// majority is needed, because a coordinator waits for every live member. A member may forget
// an instance as soon as it is decided. It answers each message of that instance by Decided,
// and the sender holds the outcome. If a live process is reported failed, it may propose
// until it is isolated, but members that have contributed to a later coordinator ignore it.
//
// # Common case
//
// While no failure is known, the members of an Agree compute the AND by an allreduce and
// enter a barrier. A member that leaves the barrier calls Complete, since all members hold the
// value. A member for which the sequence ends otherwise, or for which Requested becomes true,
// calls Start, with the value if its allreduce had completed. It holds that value as an
// outcome of ballot 0.
//
// # Members that do not take part
//
// A failed member is one that the bootstrap has reported failed. The report is final, and no
// message of that member counts afterwards. A member that has closed the communicator
// answers Closed. When it closes, it sends Closed to the members that wait for it. A member of Shrink whose context has ended is excluded from the outcome.
// Closed and excluded members are no failures.
package agreement
