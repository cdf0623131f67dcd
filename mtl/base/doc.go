// Package base has the parts that all MTLs over a C library share. Module is the state of an open module, with its part of the business card
// (Card), the unused slots (SlotPool) and the results for the next Poll (Results). Slot is an operation, and Peer a connected process. The
// functions are steps of Open. A component embeds these parts, and adds the calls and quirks of its library.
//
// The progress engine's lock guards a Module and its parts, which call Owner.Done only from Results.Deliver and Notify. The steps of Open need
// no lock. Available, LoadLibrary and Selftest block up to a deadline.
//
// A Module owns an operation's Op and buffer from SlotPool.Take until SlotPool.Release. Abandon returns the Op earlier. A buffer stays
// pinned until Release or Unpin, because the library may access it. The component has slices of its slots and peers, whose types
// embed Slot and Peer. An operation finds both by index.
//
// Errors of a peer are of type *framework.TransportError. The package depends on the contract (package mtl) and on mtl/trial, and not on a
// library.
package base
