package ofi_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/ferrympi/ferry/mtl"
)

// cgo must not check the pointers beside the buffer.
func TestProfile_BufferInsideStruct_IsAccepted(t *testing.T) {
	type record struct {
		next *int
		buf  [100_000]byte
	}
	all := members(t, 2, withProvider(useProfiles(t, "cxi"), "cxi"))
	a, b := all[0], all[1]
	for _, n := range []int{8, 1000, 100_000} {
		from, into := &record{next: new(int)}, &record{next: new(int)}
		copy(from.buf[:], bytes.Repeat([]byte{7}, n))
		r, err1 := b.receive(a, 1, into.buf[:n])
		s, err2 := a.send(b, 1, from.buf[:n], mtl.Standard)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if pollUntilDone(t, all, r, s); r.Err != nil || s.Err != nil || into.buf != from.buf {
			t.Errorf("%d bytes: %v, %v", n, r.Err, s.Err)
		}
	}
}
