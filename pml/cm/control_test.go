package cm

import (
	"bytes"
	"testing"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/pml"
)

func someControl() control {
	return control{typ: controlClosed, receiverNonce: 0x0102030405060708, senderNonce: 0x1112131415161718,
		receiverHandle: cid.EndpointID{Extended: cid.Extended{Base: 0x2122232425262728, Sub: 0x3132333435363738}, Endpoint: 0x6162}, senderEndpoint: 0x7172, senderRank: 0x41424344, local: 0x51525354,
		sent: [pml.Planes]uint64{1, 1 << 40, 1<<64 - 1}}
}

func TestControl_EncodeAndParse_AreInverse(t *testing.T) {
	want := someControl()
	b := make([]byte, controlSize)
	want.encode(b)
	if got, err := parseControl(b); err != nil || got != want {
		t.Errorf("%+v %v, want %+v", got, err, want)
	}
}

// notAGoodbye are control messages that are partly a goodbye.
func notAGoodbye() []control {
	request, elsewhere, ranked := someControl(), someControl(), someControl()
	request.typ, request.receiverHandle = controlRequest, cid.EndpointID{}
	elsewhere.typ, elsewhere.senderRank = controlGoodbye, anyRank
	ranked.typ, ranked.receiverHandle = controlGoodbye, cid.EndpointID{}
	return []control{request, elsewhere, ranked}
}

// TestParseControl_DamagedGoodbye_ReturnsError guards processes from being taken for left because of a damaged request.
func TestParseControl_DamagedGoodbye_ReturnsError(t *testing.T) {
	for _, k := range notAGoodbye() {
		b := make([]byte, controlSize)
		k.encode(b)
		if _, err := parseControl(b); err == nil {
			t.Errorf("%+v is accepted", k)
		}
	}
}

// FuzzControl checks that parseControl returns an error, or a message that encodes to the
// same bytes.
func FuzzControl(f *testing.F) {
	b := make([]byte, controlSize)
	some := someControl()
	some.encode(b)
	f.Add(b)
	goodbye := control{typ: controlGoodbye, receiverNonce: 1, senderNonce: 2, senderRank: anyRank, sent: [pml.Planes]uint64{3}}
	for _, k := range []control{goodbye, notAGoodbye()[0], notAGoodbye()[1], notAGoodbye()[2]} {
		g := make([]byte, controlSize)
		k.encode(g)
		f.Add(g)
	}
	f.Add(b[:controlSize-1])
	f.Add(append(bytes.Clone(b), 0))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := parseControl(b)
		if err != nil {
			return
		}
		again := make([]byte, controlSize)
		k.encode(again)
		if !bytes.Equal(again, b) {
			t.Errorf("%x becomes %x", b, again)
		}
	})
}

// TestIDLayout_AnyWidth_IDsAreUnique checks that different planes and indices never share an id, at any width,
// and that generations differ as far as there is room.
func TestIDLayout_AnyWidth_IDsAreUnique(t *testing.T) {
	for bits := 6; bits <= 32; bits++ {
		l, err := newIDLayout(bits)
		if err != nil {
			t.Fatal(err)
		}
		if used := l.indexBits + l.genBits + planeBits; used > bits || used < min(bits, 32) {
			t.Errorf("%d bits: index %d, generation %d", bits, l.indexBits, l.genBits)
		}
		last := uint32(1)<<l.indexBits - 1
		for _, index := range []uint32{0, 1, last / 2, last} {
			for _, gen := range []uint32{1, 2, cid.MaxGen} {
				word := l.commID(cid.MakeLocal(index, gen))
				if uint64(word)>>bits != 0 || word&(1<<planeBits-1) != 0 || l.indexOf(word|2) != index {
					t.Errorf("%d bits: index %d, generation %d become %#x", bits, index, gen, word)
				}
			}
		}
		if a, b := l.commID(cid.MakeLocal(3, 1)), l.commID(cid.MakeLocal(3, 2)); (a == b) != (l.genBits == 0) {
			t.Errorf("%d bits: two generations are %#x and %#x", bits, a, b)
		}
	}
	if _, err := newIDLayout(5); err == nil {
		t.Error("5 bits are enough")
	}
}

// FuzzParseRTS checks that parseRTS returns a complete RTS or false.
func FuzzParseRTS(f *testing.F) {
	h := rts{receiverNonce: 1, senderNonce: 2, messageNumber: 3, messageBytes: 1 << 40, maxFragment: 1 << 20}
	f.Add(h.encode(nil))
	f.Add(make([]byte, rtsSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, ok := parseRTS(b)
		if ok && !bytes.Equal(h.encode(nil), b) {
			t.Errorf("% x is taken for %+v", b, h)
		}
	})
}
