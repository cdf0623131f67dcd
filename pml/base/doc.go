// Package base is what PMLs have in common, whatever moves and matches their messages:
// communicators and their members (Comm, Comms), processes by life (Procs) and how they
// go (Exit), why an operation ends that can't be completed, and the probes of pml.Comm.
// A PML embeds it and adds its protocol.
//
// It stands on the contract (package pml) and on cid, and knows no transport. All is
// guarded by the progress engine's lock, which only Probes and Claimed take themselves.
package base
