// Package mpi is message passing with the semantics of MPI-4 Sessions, for Go.
//
// A program opens a Session, takes a Group of processes from it by the name of
// a process set, makes a Comm (communicator) from the group, and sends and
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
// the Err variables with errors.Is. All methods may be called concurrently, except that collective
// collective operations of one communicator, its creation of others included,
// are made by one goroutine at a time (MPI-4.1 section 6.13).
//
// All members of a communicator call its collectives (Barrier to Alltoallv, and those among the
// neighbors of a Cart or Graph) in one order. This includes nonblocking ones (Ibarrier to Ialltoallv). A nonblocking one continues
// while the program computes; its buffers are the library's until its Request is complete,
// and others, blocking ones too, may be called meanwhile. A wrong argument is an error of
// that member alone, found before anything is sent, and the communicator works on. One
// fails halfway breaks the communicator's collectives in all members, and they return ErrBroken.
//
// The persistent forms (BarrierInit to AlltoallvInit) are initialized in one order too, and
// then started in any order.
//
// A message's bytes travel as they lie in memory; all processes of a job run on
// machines of the same byte order.
//
// The package stands on the contracts (pml, btl, bootstrap, coll), on
// components and config for the built-in components and the configuration, and on the
// progress engine. It installs no signal handler, never writes to standard
// output, never ends the process, and runs no code at package initialization.
package mpi
