// Package wireup creates the communicator of a large group in levels, so that no process exchanges
// payloads with all members through the bootstrap (paper 000, section 3.5).
//
// It is logic without clock, lock or connection. Create is the part of one member, which reaches
// others by a Port. Package assembly implements Port over its bootstrap and PMLs, and kit wireuptest
// by a model with simulated time.
//
// # Levels
//
// Level 0 consists of the members on one node, according to the launcher's map. The first of
// them is the node root. Level 1 consists of the node roots, in blocks of BlockSize in the order of the
// group. Level 2 consists of the first member of each block, again in blocks, until one block is left. Each
// block makes an ordinary communicator by a group construct, with the deadline of Schedule. The first
// member of the last block is the coordinator.
//
// The blocks of a root form a tree, at each level a binomial one. Messages are sent on these communicators, between
// parents and children of the tree.
//
//  1. Gather. Each node root makes a Part from the payloads of its node. Parts are merged on the way
//     to the coordinator, which draws the context id and decides (Part.Decide).
//  2. Result. The Table is sent down the tree. A root shares it with the members of its node.
//  3. Confirm. Each member has accepted the table. Confirmations are merged on the way to the coordinator.
//  4. Commit. The coordinator has all confirmations. The verdict is sent down the tree.
//
// # Faults
//
// A fault is data. It has the ranks at fault and the kind of the fault. A root with a failed construct
// joins the next level, with the fault as its payload. A member with a fault sends Abort to its parent and
// children in place of the message that is due, and returns the fault. Because the coordinator needs a
// confirmation of each member, it cannot commit after that, and all members return an error. A fault
// names members that are late, failed or canceled, and not the root of their node.
//
// A member that has confirmed waits for the verdict, although its context has ended. If the path to the coordinator is
// lost at that time, the verdict is not known. The member refuses the context id (Port.Refuse), sends Lost to its children,
// which refuse it too, and returns the fault. If the others have committed, they are notified like those of a member that fails
// after a construct. This happens to the members behind a root that fails after its confirmation.
package wireup
