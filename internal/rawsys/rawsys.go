// Package rawsys bypasses Go's scheduler in nonblocking calls of a transport, which are Read and
// Write of a connection, and Stack.Call of a C library. The scheduler adds 50 to 100 cycles to a system
// call, and more to a C function.
//
// During such a call the goroutine is not preemptible and a garbage collection cannot start.
// A call must not block and must transfer at most MaxBytes, which takes a few microseconds.
package rawsys

// MaxBytes is the largest transfer of one call. Larger transfers use the ordinary calls.
const MaxBytes = 32 << 10
