//go:build !cgo

package limits

// cgo reports whether C is linked. The C library then creates the threads.
const cgo = false
