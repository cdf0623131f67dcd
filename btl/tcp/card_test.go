package tcp

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
)

var someBlob = businessCard{security: securityAuth, listenPort: 40001, authKey: [keySize]byte{1, 2, 3}, publishedAddrs: []netip.Addr{netip.MustParseAddr("10.1.0.7"), netip.MustParseAddr("fd00::7")}}

func encryptedBlob() *businessCard {
	b := someBlob
	b.security, b.tlsKey = securityTLS, bytes.Repeat([]byte{7}, tlsKeySize)
	return &b
}

// Known fields behind it are decoded.
func TestDecodeCard_UnknownField_IsSkipped(t *testing.T) {
	b := encryptedBlob()
	plain := *b
	plain.tlsKey = nil
	in := append(plain.encode(), 200, 3, 1, 2, 3)
	in = append(append(in, fieldTLSKey, tlsKeySize), b.tlsKey...)
	if got, err := decodeCard(in); err != nil || !bytes.Equal(got.encode(), b.encode()) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestDecodeCard_TLSKeyTwiceOrCut_IsError(t *testing.T) {
	b := encryptedBlob()
	none := *b
	none.tlsKey = nil
	short := append(none.encode(), fieldTLSKey, 2, 1, 2)
	two := append(append(b.encode(), fieldTLSKey, tlsKeySize), b.tlsKey...)
	for what, in := range map[string][]byte{"none": none.encode(), "short": short, "two": two} {
		if _, err := decodeCard(in); err == nil || !strings.Contains(err.Error(), "TLS") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestDecodeCard_OtherVersion_NamesBoth(t *testing.T) {
	b := someBlob.encode()
	b[0] = 9
	if _, err := decodeCard(b); err == nil || !strings.Contains(err.Error(), "9") || !strings.Contains(err.Error(), "version 1") {
		t.Error(err)
	}
}

func TestDecodeCard_Truncated_IsError(t *testing.T) {
	for _, whole := range [][]byte{someBlob.encode(), encryptedBlob().encode()} {
		for n := range whole {
			if _, err := decodeCard(whole[:n]); err == nil {
				t.Errorf("%d of %d bytes are taken", n, len(whole))
			}
		}
		if _, err := decodeCard(append(whole, 0)); err == nil {
			t.Error("a byte too many is taken")
		}
	}
}

// An accepted card equals its own encoding.
func FuzzCard(f *testing.F) {
	f.Add(someBlob.encode())
	f.Add([]byte{version})
	f.Add(encryptedBlob().encode())
	f.Add(append(someBlob.encode(), 200, 1, 0))
	f.Fuzz(func(t *testing.T, in []byte) {
		b, err := decodeCard(in)
		if err != nil {
			return
		}
		again, err := decodeCard(b.encode())
		if err != nil || !bytes.Equal(again.encode(), b.encode()) {
			t.Fatalf("%x: %+v, then %+v, %v", in, b, again, err)
		}
	})
}
