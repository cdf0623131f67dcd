// Package rawsys makes the calls of a transport that never waits, without telling Go's
// scheduler, which takes 50 to 100 cycles a system call, and more for a function of C: those of a
// connection (Read, Write), and those of a C library (Stack.Call).
//
// The scheduler can't take the processor from a goroutine in such a call, nor can garbage
// collection begin meanwhile. So a call is to move Most bytes at most, which takes a few
// microseconds, and to wait for nothing.
package rawsys

// Most is what a call moves, in bytes. More goes by the ordinary calls.
const Most = 32 << 10
