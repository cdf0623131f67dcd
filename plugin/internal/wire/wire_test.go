package wire

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func start() Start {
	return Start{Version: Version, Nonce: 7, Rank: 1, Size: 4, LocalRank: 1, LocalSize: 2, Namespace: "job7", Node: "n", Dir: "/tmp/x"}
}

func offer() Offer {
	return Offer{Version: Version, Reaches: 3, Eager: 100, Frame: 256, Exclusivity: -1, Latency: 1000, Name: "x", Device: "y", Blob: []byte{1, 0}}
}

func target() Target {
	return Target{Caller: Caller{1, 2, 3}, Namespace: "job7", Greeting: []byte("hello"), Blob: []byte{9}}
}

func TestBodies_EncodeAndParse_RoundTrip(t *testing.T) {
	s, err := ParseStart(start().Bytes()[4:])
	if d := cmp.Diff(start(), s); d != "" || err != nil {
		t.Error(err, d)
	}
	o, err := ParseOffer(offer().Bytes()[4:])
	if d := cmp.Diff(offer(), o); d != "" || err != nil {
		t.Error(err, d)
	}
	c, err := ParseTarget(target().Bytes())
	if d := cmp.Diff(target(), c); d != "" || err != nil {
		t.Error(err, d)
	}
}

// Plugins in other languages encode these bytes from docs/plugin-protocol.md.
func TestBodies_Encode_MatchSpecification(t *testing.T) {
	want := "\x01\x00\x00\x00\x01\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x04\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00\x04\x00\x00\x00job7\x01\x00\x00\x00n\x06\x00\x00\x00/tmp/x"
	if d := cmp.Diff(want, string(start().Bytes())); d != "" {
		t.Error(d)
	}
	want = "\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x04\x00\x00\x00job7\x05\x00\x00\x00hello\x01\x00\x00\x00\x09"
	if d := cmp.Diff(want, string(target().Bytes())); d != "" {
		t.Error(d)
	}
}

func TestParse_OtherVersion_NamesTheOlderSide(t *testing.T) {
	s, o := start(), offer()
	s.Version, o.Version = 2, 0
	if _, err := ParseStart(s.Bytes()[4:]); err == nil || !strings.Contains(err.Error(), "the rank speaks version 2 of the plugin protocol, and the plugin version 1: the plugin, which is older") {
		t.Error(err)
	}
	if _, err := ParseOffer(o.Bytes()[4:]); err == nil || !strings.Contains(err.Error(), "the plugin version 0: the plugin, which is older") {
		t.Error(err)
	}
}

func TestCheck_InvalidHeader_ReturnsError(t *testing.T) {
	mem := make([]byte, Size(64))
	Layout(mem, 64)
	if n, err := Check(mem); n != 64 || err != nil {
		t.Fatal(n, err)
	}
	for _, harm := range []func([]byte) []byte{
		func(b []byte) []byte { return b[:100] },
		func(b []byte) []byte { return b[:len(b)-64] },
		func(b []byte) []byte { b[0]++; return b },
		func(b []byte) []byte { b[8]++; return b },
		func(b []byte) []byte { b[12]++; return b },
		func(b []byte) []byte { b[15] = 0xff; return b },
	} {
		if _, err := Check(harm(append([]byte{}, mem...))); err == nil {
			t.Error("no error")
		}
	}
}

// Parsers return an error or a value, and never allocate a claimed length.
func FuzzControl(f *testing.F) {
	f.Add(start().Bytes()[4:])
	f.Add(offer().Bytes()[4:])
	f.Add(target().Bytes())
	f.Add([]byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := ParseStart(b); err == nil && string(s.Bytes()[4:]) != string(b) {
			t.Errorf("%+v from %x", s, b)
		}
		if o, err := ParseOffer(b); err == nil && string(o.Bytes()[4:]) != string(b) {
			t.Errorf("%+v from %x", o, b)
		}
		if c, err := ParseTarget(b); err == nil && string(c.Bytes()) != string(b) {
			t.Errorf("%+v from %x", c, b)
		}
		_, _ = ParseCaller(b)
		_, _, _, _ = Take(b)
	})
}
