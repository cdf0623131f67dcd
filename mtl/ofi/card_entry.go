package ofi

import (
	"fmt"
	"net/netip"

	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mtl/base"
)

// cardVersion is the version of cardEntry's encoding and of the control frames.
const cardVersion = 2

// cardEntry is this component's entry in a business card. The encoding is the version byte, followed by the fields with
// a zero byte between them, which the first two fields cannot contain.
type cardEntry struct {
	offer string
	// nodeProof identifies the node of a process that only its node reaches; otherwise it is empty.
	nodeProof string
	address   []byte
}

func (b cardEntry) encode() []byte {
	return fmt.Appendf(nil, "%c%s\x00%s\x00%s", cardVersion, b.offer, b.nodeProof, b.address)
}

// parseCardEntry decodes the entry of a peer. The input is untrusted.
func parseCardEntry(in []byte) (cardEntry, error) {
	parts, err := base.SplitCardEntry(in, cardVersion, 1, 3)
	if err != nil {
		return cardEntry{}, err
	}
	return cardEntry{string(parts[0]), string(parts[1]), parts[2]}, nil
}

// formatName returns the name of an address format in offers. Different formats cannot connect.
func formatName(format uint32) string {
	switch format {
	case libfabric.IPv4Address:
		return "IPv4"
	case libfabric.IPv6Address:
		return "IPv6"
	}
	return fmt.Sprintf("addresses of format %d", format)
}

// ipOf returns the IP address of a sockaddr. It returns false for other formats.
func ipOf(format uint32, address []byte) (netip.Addr, bool) {
	switch {
	case format == libfabric.IPv4Address && len(address) >= 8:
		return netip.AddrFrom4([4]byte(address[4:8])), true
	case format == libfabric.IPv6Address && len(address) >= 24:
		return netip.AddrFrom16([16]byte(address[8:24])), true
	}
	return netip.Addr{}, false
}
