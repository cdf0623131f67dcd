package pmi1

import (
	"bytes"
	"testing"
)

// A port from a server is a part of a value or an error. Encoded values survive the round trip.
func FuzzPorts(f *testing.F) {
	f.Add("2.00000000.616263", []byte("value"))
	f.Add("0.x.", []byte{})
	f.Fuzz(func(t *testing.T, port string, value []byte) {
		count, check, part, err := decodeHead(port)
		if err == nil && (count < 1 || count > maxParts || len(part) > len(port) || len(check) > len(port)) {
			t.Errorf("%q has %d parts", port, count)
		}
		_, _ = decodePart(port, check)
		ports := encodePorts("name", value, 16)
		if len(ports) > maxParts {
			return
		}
		count, check, got, err := decodeHead(ports[0])
		if err != nil || count != len(ports) {
			t.Fatalf("%q: %d parts, %v", ports, count, err)
		}
		for _, p := range ports[1:] {
			more, err := decodePart(p, check)
			if err != nil {
				t.Fatalf("%q: %v", p, err)
			}
			got = append(got, more...)
		}
		if !bytes.Equal(got, value) {
			t.Errorf("%x became %x", value, got)
		}
	})
}
