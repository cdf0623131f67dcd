// Package run carries out the collective operations of communicators. It is between the algorithms
// (package coll and its components), which produce schedules, and a PML, which has the messages.
// Package mpi checks arguments and describes an operation as a Call.
//
// A State belongs to one rank of one communicator. A blocking call (State.Run) carries out its
// schedule on the caller's goroutine. A nonblocking one (State.Start) is an Operation, which the
// progress engine advances. A persistent one in shared memory is an Early between Start and Wait.
// All ranks call the operations of a communicator in the same order. The order gives an operation
// its tag, and opens the instances of components (instances.go) in all ranks at the same operation.
//
// An operation that fails halfway breaks the communicator's collectives, because ranks may have
// different views of its completion (State.Fail). All later operations then return ErrBroken, and
// the other ranks are notified through the Host.
//
// Buffers of a Call belong to the package until the operation ends. Methods of State may be called
// concurrently, and a second operation at the same time is ErrPending. Fields with the comment
// "Guarded by the engine's lock" are those of the rank's progress.Engine. Functions of the program
// (reductions) run without that lock.
package run
