package wireup

import (
	"bytes"
	"testing"

	"github.com/ferrympi/ferry/framework"
)

func someCard(t testing.TB) []byte {
	t.Helper()
	b, err := EncodeCard(framework.Card{{Component: "btl.shm", Blob: []byte("segment")}, {Component: "btl.tcp", Blob: bytes.Repeat([]byte{1}, 300)},
		{Component: "btl.tcp", Blob: []byte("second")}, {Component: "btl.none", Blob: []byte{}}}.WithNode("node 1"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestFindAddress_EncodedCard_AllocatesNothing(t *testing.T) {
	card := someCard(t)
	var blob []byte
	var found bool
	var err error
	if n := testing.AllocsPerRun(10, func() { blob, found, err = FindAddress(card, "btl.shm") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if string(blob) != "segment" || !found || err != nil {
		t.Errorf("%q, %t, %v", blob, found, err)
	}
}

func TestFindAddress_EmptyAddress_IsFound(t *testing.T) {
	if blob, found, err := FindAddress(someCard(t), "btl.none"); blob == nil || !found || err != nil {
		t.Errorf("%v, %t, %v", blob, found, err)
	}
}

// FuzzFindAddress compares FindAddress with DecodeCard.
func FuzzFindAddress(f *testing.F) {
	card := someCard(f)
	for _, c := range [][]byte{card, card[:len(card)-1], append(bytes.Clone(card), 0), {0x80}, {0x81, 0x82, 0x61, 'x', 0x58, 0}, {0x98, 0}} {
		f.Add(c, "node")
		f.Add(c, "x")
	}
	f.Fuzz(func(t *testing.T, b []byte, component string) {
		blob, found, err := FindAddress(b, component)
		decoded, want := DecodeCard(b)
		if (err == nil) != (want == nil) {
			t.Fatalf("error %v in place of %v", err, want)
		}
		for _, a := range decoded {
			if a.Component == component {
				if !found || !bytes.Equal(blob, a.Blob) {
					t.Errorf("%x, %t in place of %x", blob, found, a.Blob)
				}
				return
			}
		}
		if found {
			t.Errorf("%x, of no address of the card", blob)
		}
	})
}
