package tcp

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
)

var someBlob = blob{security: auth, port: 40001, key: [keySize]byte{1, 2, 3}, addrs: []netip.Addr{netip.MustParseAddr("10.1.0.7"), netip.MustParseAddr("fd00::7")}}

func TestCardOfAnotherVersionNamesBoth(t *testing.T) {
	b := someBlob.encode()
	b[0] = 9
	if _, err := decodeBlob(b); err == nil || !strings.Contains(err.Error(), "9") || !strings.Contains(err.Error(), "version 1") {
		t.Error(err)
	}
}

func TestCutCardIsAnError(t *testing.T) {
	whole := someBlob.encode()
	for n := range whole {
		if _, err := decodeBlob(whole[:n]); err == nil {
			t.Errorf("%d of %d bytes are taken", n, len(whole))
		}
	}
	if _, err := decodeBlob(append(whole, 0)); err == nil {
		t.Error("a byte too many is taken")
	}
}

// FuzzBlob: what is taken is what its own encoding says.
func FuzzBlob(f *testing.F) {
	f.Add(someBlob.encode())
	f.Add([]byte{version})
	f.Fuzz(func(t *testing.T, in []byte) {
		b, err := decodeBlob(in)
		if err != nil {
			return
		}
		again, err := decodeBlob(b.encode())
		if err != nil || !bytes.Equal(again.encode(), b.encode()) {
			t.Fatalf("%x: %+v, then %+v, %v", in, b, again, err)
		}
	})
}
