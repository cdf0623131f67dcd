// Package mpi provides message passing with the semantics of MPI-4 Sessions.
//
// A program opens a Session, takes a Group of processes from it by the name of
// a process set, creates a Comm (communicator) from the group, and sends and
// receives on it:
//
//	s, err := mpi.OpenSession(ctx)
//	world, err := s.Group(ctx, "mpi://WORLD")
//	c, err := mpi.CommFromGroup(ctx, world, "my-program")
//	if c.Rank() == 0 {
//		err = c.Send(ctx, []byte("hello"), 1, 0)
//	} else {
//		st, err = c.Recv(ctx, buf, mpi.AnySource, mpi.AnyTag)
//	}
//	c.Close()
//	s.Close()
//
// OpenSession is local and sends no message. Sessions may overlap, and new ones may be opened after others are closed. They share one process engine,
// which the first one starts and the last one ends.
//
// Every call that may block takes a context. nil stands for context.Background. The end of a context withdraws an operation that has not matched,
// and never aborts a matched one. A call whose context has ended before returns an error and has no effect, even if it would not block. As
// exceptions, calls that wait for requests still take completed ones, and (*Message).Recv still receives its message. Errors are values, and match
// the Err variables with errors.Is. All methods may be called concurrently, except that one goroutine at a time calls the collective operations of a
// communicator, including the creation of others from it (MPI-4.1 section 6.13).
//
// All members of a communicator call its collectives (Barrier to Alltoallv, and those among the neighbors of a Cart or Graph) in the same order. This
// includes nonblocking ones (Ibarrier to Ialltoallv). A nonblocking collective progresses while the program computes. Its buffers belong to the
// library until its Request is complete. Other collectives may be called before that. An invalid argument is an error of that member alone, returned
// before anything is sent, and the communicator still works. A collective that fails halfway breaks the communicator's collectives in all members,
// and they return ErrBroken.
//
// The persistent forms (BarrierInit to AlltoallvInit) are initialized in the same order, and then started in any order.
//
// Messages have the representation of values in memory. All processes of a job must run on machines with the same byte order.
//
// The package stands on the contracts (pml, btl, bootstrap, coll), on
// components and config for the built-in components and the configuration, and on the
// progress engine. It installs no signal handler, never writes to standard
// output, never ends the process, and runs no code at package initialization.
package mpi
