package mesh

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"strings"

	"github.com/ferrympi/ferry/internal/hostid"
	"github.com/ferrympi/ferry/internal/netaddr"
)

// protocolVersion is the version of the entry, the handshake and the messages. All processes of a
// job have the same.
const protocolVersion = 5

// keySize is the length of a key in bytes.
const keySize = 32

// entry is what a process publishes about its sockets. docs/wire.md has the encoding.
type entry struct {
	// Secret that only processes of the job know.
	key [keySize]byte
	// Identifies the process in all its incarnations.
	nonce uint64
	// Identifies the host and network namespace of the Unix socket. 0 if there is none.
	hostID uint64
	// TCP port, 0 if there is none.
	port uint16
	// In order of preference.
	addrs []netip.Addr
}

const entryHeaderSize = 1 + keySize + 8 + 8 + 2 + 1

func (e *entry) encode() []byte {
	b := make([]byte, 0, entryHeaderSize+17*len(e.addrs))
	b = append(b, protocolVersion)
	b = append(b, e.key[:]...)
	b = binary.BigEndian.AppendUint64(b, e.nonce)
	b = binary.BigEndian.AppendUint64(b, e.hostID)
	b = binary.BigEndian.AppendUint16(b, e.port)
	b = append(b, byte(len(e.addrs)))
	for _, a := range e.addrs {
		ip := a.AsSlice()
		b = append(append(b, byte(len(ip))), ip...)
	}
	return b
}

// decodeEntry decodes and checks an entry from a launcher.
func decodeEntry(b []byte) (entry, error) {
	var e entry
	switch {
	case len(b) == 0:
		return e, errors.New("the entry is empty")
	case b[0] != protocolVersion:
		return e, fmt.Errorf("the entry has version %d, this process speaks %d: build all programs of a job with the same version of ferry", b[0], protocolVersion)
	case len(b) < entryHeaderSize:
		return e, fmt.Errorf("truncated entry: %d bytes", len(b))
	case len(b) > MaxEntry:
		return e, fmt.Errorf("the entry has %d bytes, the limit is %d", len(b), MaxEntry)
	}
	at := 1 + copy(e.key[:], b[1:])
	e.nonce = binary.BigEndian.Uint64(b[at:])
	e.hostID = binary.BigEndian.Uint64(b[at+8:])
	e.port = binary.BigEndian.Uint16(b[at+16:])
	count, rest := int(b[at+18]), b[entryHeaderSize:]
	if e.nonce == 0 || count > netaddr.MaxPublished || (e.port == 0) != (count == 0) {
		return e, fmt.Errorf("invalid entry: nonce %d, port %d with %d addresses", e.nonce, e.port, count)
	}
	for range count {
		if len(rest) == 0 || len(rest) < 1+int(rest[0]) {
			return e, errors.New("truncated entry: incomplete address")
		}
		a, ok := netip.AddrFromSlice(rest[1 : 1+int(rest[0])])
		if !ok {
			return e, fmt.Errorf("the entry has an address of %d bytes", rest[0])
		}
		e.addrs, rest = append(e.addrs, a), rest[1+int(rest[0]):]
	}
	if len(rest) > 0 {
		return e, fmt.Errorf("the entry has %d bytes too many", len(rest))
	}
	return e, nil
}

// socketName returns the name of the Unix socket. It is in the abstract namespace, so the kernel
// removes it with the process.
func (e *entry) socketName() string { return fmt.Sprintf("@ferry-meet-%016x", e.nonce) }

// tcpAddrs lists the TCP addresses for errors.
func (e *entry) tcpAddrs() string {
	var s []string
	for _, a := range e.addrs {
		s = append(s, netip.AddrPortFrom(a, e.port).String())
	}
	return strings.Join(s, ", ")
}

// localHostID identifies the abstract namespace of Unix sockets, which is this boot of the host
// with this network namespace. It is 0 if unknown.
func localHostID() uint64 {
	proof, err := hostid.Proof("/proc/self/ns/net")
	if err != nil {
		return 0
	}
	h := fnv.New64a()
	h.Write([]byte(proof))
	return max(h.Sum64(), 1)
}
