// Package sets is the state machine of a job's process sets, of the changes of the job, and of the
// data of sets, as bootstrap.Changer specifies them. A launcher's server calls it for its clients,
// rank 0 of bootstrap/mesh for all processes, and a singleton for itself.
//
// It is pure logic without locks, time or connections. The caller holds its own lock during each
// call, so that every outcome is decided at one moment. Calls of processes are join.Waiters, each
// answered once. Options.Order passes orders to the launcher, which answers an order to start
// processes by Started.
//
// A change is in one of these states:
//
//	starting     The processes are ordered. Only they see the change, until Started.
//	open         Queries return the change, and members enter Integrate.
//	integrated   All members have integrated. The outcome is final.
//	finished     FinishChange was called, or the requesting process has ended.
//	undone       A death, a deadline, a withdrawn request or a failed start has deleted
//	             the sets and ended the processes of the change.
//
// The group of a change is the present members of its associated set, and the joining processes. A
// present process has not ended, and has not left by an integrated change. A process is in the
// group of one unfinished change at most.
//
// The ranks of an order follow the highest rank that was ever ordered. A rank without a process has
// ended.
package sets
