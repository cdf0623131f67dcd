// Package base is what PMLs have in common, whatever moves and matches their messages:
// how a process goes, the communicators and their members, and why an operation ends
// that can't be completed. A PML embeds it and adds its protocol.
//
// It stands on the contract (package pml) and on cid. It knows no transport, and no
// method of it blocks. Everything is guarded by the progress engine's lock.
package base
