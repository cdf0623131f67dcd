// Package threads carries the messages between goroutine ranks of one process, the ranks of
// a thread communicator. A Team is the ranks of one thread communicator, a Rank has the message
// queue and the progress engine of one of them, and AddComm makes pml.Comm handles.
//
// # A message
//
// Each rank has a ring of 64 cells of one cache line (ring.go). A sender claims a cell by
// compare-and-swap, fills it, publishes it by one store, and reads two words of the rank.
// If a wait polls for the rank, or none is parked and no end of an operation is notified
// (or belongs to a closed communicator), the sender is done.
// Otherwise it acquires the rank's lock, drains the ring, matches, completes and wakes
// (deliver.go). So no rank needs a thread, and a waiting sender may do all of the
// receiver's work. Offers are delivered in any case.
//
// A cell holds a payload of up to 40 bytes, or a pooled copy (up to Params.EagerLimit, while
// the receiver has less than Params.UnexpectedLimit of unmatched messages), or an offer. An
// offer is a send whose payload stays in the sender's buffer. When it has matched, the
// receiver copies chunks from the front and a waiting sender copies chunks from the back,
// without a lock (transfer.go). The last one completes the operations of both. A payload of one
// chunk is copied at once, under the receiver's lock.
//
// A sender that finds the ring full drains it into the queue. If the rank's lock is busy, or
// the sender holds another rank's, the message goes to an overflow list behind the ring. So
// no send waits for another rank, and no message overtakes another of the same sender.
//
// # Locks
//
// The lock of a rank is that of its engine (progress.Engine.NewRank). It guards queues,
// requests and free lists. Under it no other rank's lock is acquired. Work for other ranks is
// deferred until the release, which is by Engine.Release, also for callers of StartSend,
// StartRecv and Claimed.Start. The mutexes of a Team and of an overflow list are leaves.
//
// # Other processes
//
// A rank has a handle in the PML below (Below) for each communicator with members of other
// processes. If that is pml.Watchable, the rank watches all planes, and one queue has the
// messages of all members (below.go). Sends use the PML below directly, and so do blocking receives
// from a rank of another process, as long as no other receive can match. Otherwise the owner of the
// team joins the queue and the handle.
//
// The process's lock is acquired before a rank's. Messages of other processes come under both.
// Work that needs the process's lock is deferred until the rank's has been released, for example the start of a
// transfer, the end of a watch, operations that start under the rank's lock (base.Deferring).
//
// The package depends on the contract (pml), pml/base, match and progress.
package threads
