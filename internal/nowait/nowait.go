// Package nowait makes the system calls of a connection that never waits, without telling
// Go's scheduler, which takes 50 to 100 cycles a call.
//
// The scheduler can't take the processor from a goroutine in such a call, nor can garbage
// collection begin meanwhile. So a call is to move Most bytes at most, which takes a few
// microseconds.
package nowait

// Most is what a call moves, in bytes. More goes by the ordinary calls.
const Most = 32 << 10
