// Package base has the parts that all PMLs share. These are communicators and their members (Comm, Comms),
// incarnations of processes (Procs) and their ends (Exit), the errors of operations that cannot complete, and the
// probes of pml.Comm. A PML embeds them and adds its protocol.
//
// It depends on the contract (package pml) and on cid, and not on transports. The progress engine's lock guards
// everything. Only Probes and Claimed lock it themselves.
package base
