// Package base has the parts that all MTLs over a C library share: the state of an open module (Module) with its part of the business card
// (Card), its operations (Slot, SlotPool), its peers (Peer) and the results for the next Poll (Results), and the steps of Open
// (LoadLibrary, SetVariables, DescriptorChoices, OpenWithin, Selftest, Warn). A component embeds them, and adds the calls and quirks of
// its library.
//
// # Locks
//
// The progress engine's lock guards a Module and its parts. They have no lock of their own, and call Owner.Done only from Results.Deliver
// and Notify. The steps of Open need no lock.
//
// # Ownership
//
// A Module owns an operation's Op and buffer from SlotPool.Take until SlotPool.Release, or until Abandon, which returns only the Op. A pinned buffer stays pinned until
// Release or Unpin, because the library may access it. The component keeps its slots and peers in slices of its own types, which
// embed Slot and Peer, so that an operation finds both by index without a call.
//
// # Blocking and errors
//
// Only Available, LoadLibrary, OpenWithin and Selftest block, each up to its deadline, and after it return an error that wraps
// trial.ErrHangs or ErrSelftestTimeout. Failures of a peer are of type *framework.TransportError.
//
// The package depends on the contract (package mtl) and on mtl/trial, and not on a library.
package base
