//go:build !cgo

package limits

// cgo says that C is linked, which makes the threads.
const cgo = false
