package wireup

import (
	"bytes"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

func encodedPayload(t testing.TB) []byte {
	p := somePayload(t)
	p.GroupIDs = nil
	b, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestPayload_Encoded_ComesBack(t *testing.T) {
	b := encodedPayload(t)
	p, err := DecodePayload(b)
	if err != nil {
		t.Fatal(err)
	}
	offers, err := DecodeCapabilities(p.Capabilities)
	if err != nil || len(offers) != 1 || offers[0] != (pml.Capabilities{PML: "ob1", Version: 1, Priority: 20}) {
		t.Errorf("%+v, %v", offers, err)
	}
	card, err := DecodeCard(p.Card)
	if err != nil || len(card) != 1 || p.Nonce != 7 || string(card.Find(framework.BTL, "shm")) != "segment" {
		t.Errorf("%+v, %v", card, err)
	}
	if n := len(p.Capabilities) + len(p.Card) + len(p.IDs); len(b)-n > PayloadFrame {
		t.Errorf("the frame has %d bytes, more than PayloadFrame", len(b)-n)
	}
}

func TestDecodePayload_Garbage_ReturnsError(t *testing.T) {
	good := encodedPayload(t)
	for name, b := range map[string][]byte{
		"empty":            nil,
		"too long":         make([]byte, bootstrap.MaxPayload+1),
		"cut":              good[:len(good)-1],
		"more behind":      append(bytes.Clone(good), 0),
		"another version":  append([]byte{good[0], Version + 1}, good[2:]...),
		"another type":     {0x60},
		"too few elements": {0x81, Version},
		"no nonce":         {0x8a, Version, 0, 0x80, 0x80, 0x40, 0, 0x80, 0x40, 0x80, 0x80},
		"bad fault":        {0x8a, Version, 1, 0x80, 0x80, 0x40, 0, 0x80, 0x40, 0x80, 0x81, 0x83, 1, 99, 0x60},
	} {
		if _, err := DecodePayload(b); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := DecodePayload([]byte{0x8a, Version, 1, 0x80, 0x80, 0x40, 0, 0x80, 0x40, 0x80, 0x81, 0x83, 1, 1, 0x60}); err != nil {
		t.Errorf("a payload with a fault: %v", err)
	}
}

// The payload of an earlier version, which has another number of elements, is refused by its version.
func TestDecodePayload_EarlierVersion_IsNamed(t *testing.T) {
	for _, b := range [][]byte{{0x84, 1, 0x80, 0x80, 0x40}, {0x87, 4, 1, 0x80, 0x80, 0x40, 0, 0x80}} {
		if _, err := DecodePayload(b); err == nil || !strings.Contains(err.Error(), ", and this program speaks 5") {
			t.Error(err)
		}
	}
}

func TestDecodeEnded_Garbage_ReturnsError(t *testing.T) {
	list := make([]Ended, MaxEnded+1)
	b, err := EncodeEnded(list)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeEnded(b); err == nil {
		t.Error("too many: accepted")
	}
	if _, err := DecodeEnded([]byte{0x60}); err == nil {
		t.Error("another type: accepted")
	}
	if b, err = EncodeEnded(list[:2]); err != nil {
		t.Fatal(err)
	}
	if got, err := DecodeEnded(b); err != nil || len(got) != 2 {
		t.Errorf("%+v, %v", got, err)
	}
}
