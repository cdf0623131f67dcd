// Package sets is the state machine of a job's process sets, of the changes of the job, and
// of the data of sets, as bootstrap.Changer states them. A launcher's server calls it for its
// clients, and a singleton for itself.
//
// It is pure logic without lock, time or connection: the caller holds its own lock during
// each call, so that every outcome is decided at one moment. Calls of processes are
// join.Waiters, each answered once. Orders to the launcher go out through Options.Order, and
// the launcher answers an order to start processes by Started.
//
// A change is in one of these states:
//
//	starting     processes were ordered, and Started has not been called. Other processes do not see the change.
//	open         queries return it; members enter Integrate.
//	integrated   all members have integrated. The outcome stands, whatever happens to them.
//	finished     by FinishChange, or by the end of the requesting process.
//	undone       by a death, a deadline, a withdrawn Operate, or processes that could not be
//	             started: sets that it created are deleted, and processes that it started are
//	             ended.
//
// The group of a change is the present members of its associated set, and the joining
// processes. A present process has not ended, and has not left by an integrated change. A
// process is in the group of one unfinished change at most.
//
// Ranks only rise: those of an order follow the highest rank ever ordered. A rank without a
// process has ended.
package sets
