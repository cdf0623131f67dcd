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
// Opening a session is local: no message leaves the process. Sessions may
// overlap, end and begin again. They share one engine, which the first one
// starts and the last one ends.
//
// Every call that may wait takes a context; nil is context.Background. A context
// that ends withdraws an operation that is not matched yet, and never tears a
// matched one. A call whose context has ended before does nothing and fails, also
// where there is nothing to wait for; only what is complete already is taken by the
// calls that wait for requests, and what is matched already is received by
// (*Message).Recv. Errors are values: see the Err variables for errors.Is. Methods
// may be called by any number of goroutines at the same time, except that the
// collective operations of one communicator, its creation of others included,
// are made by one goroutine at a time (MPI-4.1 section 6.13).
//
// All members of a communicator call its collectives (Barrier to Alltoallv, and those among the
// neighbors of a Cart or Graph) in one order. This includes nonblocking ones (Ibarrier to Ialltoallv). A nonblocking one continues
// while the program computes; its buffers are the library's until its Request is complete,
// and others, blocking ones too, may be called meanwhile. A wrong argument is an error of
// that member alone, found before anything is sent, and the communicator works on. One
// that fails in its middle breaks the communicator's collectives in all members: ErrBroken.
//
// The persistent forms (BarrierInit to AlltoallvInit) are initialized in one order too, and
// then started in any order.
//
// A message's bytes travel as they lie in memory; all processes of a job run on
// machines of the same byte order.
//
// The package stands on the contracts (pml, btl, bootstrap, coll), on
// components and config for what is compiled in and configured, and on the
// progress engine. It installs no signal handler, never writes to standard
// output, never ends the process, and does nothing when it is imported.
package mpi
