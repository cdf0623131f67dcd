package tcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/ferrympi/ferry/internal/netaddr"
)

// version is the version of card, handshake and frames.
const version = 1

// security is the protection of a connection. Both ends must have the same.
type security uint8

const (
	// Both ends prove that they have the key of the acceptor's card.
	securityAuth security = iota + 1
	securityNone
	// As securityAuth, within TLS with the keys of both cards.
	securityTLS
)

var securityNames = map[security]string{securityAuth: "auth", securityNone: "none", securityTLS: "tls"}

func (s security) String() string {
	if name, ok := securityNames[s]; ok {
		return name
	}
	return fmt.Sprintf("number %d", uint8(s))
}

// mismatch returns an error unless the peer has the same security.
func (s security) mismatch(peer security) error {
	if s == peer {
		return nil
	}
	return fmt.Errorf("%w %v here and %v at the peer: set the same value in all processes of the job", errSecurityDiffers, s, peer)
}

var errSecurityDiffers = errors.New("btl.tcp.security is")

const keySize = 32

// businessCard is the entry of this transport in the business card. The key proves that a caller has the
// card, and that the acceptor is its process.
type businessCard struct {
	security   security
	listenPort uint16
	// Zero without security.
	authKey [keySize]byte
	// Order of preference.
	publishedAddrs []netip.Addr
	tlsKey         []byte
}

// The card is little-endian: u8 version, u8 security, u16 port, 32 bytes key, u8 number of addresses, and
// each as u8 length and its 4 or 16 bytes. Fields follow, each as u8 type, u8 length and its bytes. A
// reader skips unknown fields.
const cardHeaderSize = 1 + 1 + 2 + keySize + 1

const fieldTLSKey = 1

func (b *businessCard) encode() []byte {
	out := binary.LittleEndian.AppendUint16([]byte{version, byte(b.security)}, b.listenPort)
	out = append(append(out, b.authKey[:]...), byte(len(b.publishedAddrs)))
	for _, a := range b.publishedAddrs {
		out = append(append(out, byte(a.BitLen()/8)), a.AsSlice()...)
	}
	if b.tlsKey != nil {
		out = append(append(out, fieldTLSKey, byte(len(b.tlsKey))), b.tlsKey...)
	}
	return out
}

// decodeCard decodes the card of another process.
func decodeCard(in []byte) (b businessCard, err error) {
	if len(in) == 0 {
		return b, fmt.Errorf("the peer's card is empty")
	}
	if in[0] != version {
		return b, fmt.Errorf("the peer's card has version %d, and this program speaks version %d", in[0], version)
	}
	if len(in) < cardHeaderSize {
		return b, fmt.Errorf("the peer's card is too short: %d bytes", len(in))
	}
	b.security, b.listenPort = security(in[1]), binary.LittleEndian.Uint16(in[2:])
	copy(b.authKey[:], in[4:])
	n, rest := int(in[cardHeaderSize-1]), in[cardHeaderSize:]
	if n > netaddr.MaxPublished {
		return b, fmt.Errorf("the peer's card lists %d addresses, more than %d", n, netaddr.MaxPublished)
	}
	for range n {
		if len(rest) == 0 || int(rest[0]) > len(rest)-1 {
			return b, fmt.Errorf("the peer's card ends within an address")
		}
		size := int(rest[0])
		a, ok := netip.AddrFromSlice(rest[1 : 1+size])
		if !ok {
			return b, fmt.Errorf("the peer's card has an address of %d bytes", size)
		}
		b.publishedAddrs, rest = append(b.publishedAddrs, a.Unmap()), rest[1+size:]
	}
	for len(rest) > 0 {
		if len(rest) < 2 || int(rest[1]) > len(rest)-2 {
			return b, fmt.Errorf("the peer's card ends within a field")
		}
		fieldType, size := rest[0], int(rest[1])
		if fieldType == fieldTLSKey {
			if size != tlsKeySize || b.tlsKey != nil {
				return b, fmt.Errorf("the peer's card has more than one key for TLS, or one of %d bytes instead of %d", size, tlsKeySize)
			}
			b.tlsKey = bytes.Clone(rest[2 : 2+size])
		}
		rest = rest[2+size:]
	}
	if b.security == securityTLS && b.tlsKey == nil {
		return b, fmt.Errorf("the peer's card has no key for TLS")
	}
	return b, nil
}
