package ofi

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"

	"github.com/ferrympi/ferry/internal/libfabric"
)

// blobVersion is that of blob's encoding and of what modules send one another.
const blobVersion = 2

// blob is this component's part of a business card: the version, then its fields with
// a zero between them, which is in no text.
type blob struct {
	offer   string
	node    string // of a process that only its node reaches; otherwise empty
	address []byte // libfabric's
}

func (b blob) encode() []byte {
	return fmt.Appendf(nil, "%c%s\x00%s\x00%s", blobVersion, b.offer, b.node, b.address)
}

var errBlob = errors.New("its entry in the business card makes no sense")

// parseBlob takes a peer's entry apart. It is a stranger's text.
func parseBlob(in []byte) (blob, error) {
	if len(in) == 0 {
		return blob{}, errors.New("its business card has no entry for it")
	}
	if in[0] != blobVersion {
		return blob{}, fmt.Errorf("it speaks version %d, and this process version %d", in[0], blobVersion)
	}
	parts := bytes.SplitN(in[1:], []byte{0}, 3)
	if len(parts) < 3 || len(parts[0]) == 0 || len(parts[2]) == 0 {
		return blob{}, errBlob
	}
	return blob{string(parts[0]), string(parts[1]), parts[2]}, nil
}

// formatName names a format in offers: who has another one is not reached.
func formatName(format uint32) string {
	switch format {
	case libfabric.IPv4Address:
		return "IPv4"
	case libfabric.IPv6Address:
		return "IPv6"
	}
	return fmt.Sprintf("addresses of format %d", format)
}

// ipOf returns the IP address in a sockaddr, if it is one.
func ipOf(format uint32, address []byte) (netip.Addr, bool) {
	switch {
	case format == libfabric.IPv4Address && len(address) >= 8:
		return netip.AddrFrom4([4]byte(address[4:8])), true
	case format == libfabric.IPv6Address && len(address) >= 24:
		return netip.AddrFrom16([16]byte(address[8:24])), true
	}
	return netip.Addr{}, false
}
