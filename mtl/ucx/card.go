package ucx

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/netaddr"
	"github.com/ferrympi/ferry/internal/ucp"
	"github.com/ferrympi/ferry/mtl/base"
)

// cardVersion is the version of cardEntry's encoding and of the control messages.
const cardVersion = 1

// maxCardEntry is the largest length of an entry, in bytes. With those of other components it must fit into the payload of a
// group construct, which is 64 KiB.
const maxCardEntry = 48 << 10

// cardEntry is this component's entry in a business card:
//
//	version, checksum of all that follows (4 bytes, CRC-32C),
//	incarnation of the process (id and nonce, 8 bytes each),
//	offer, node, transports and version of the library, each with a zero behind it,
//	the worker's address.
//
// Numbers are little-endian. UCX takes an address without a length and does not validate it, so the checksum protects
// it.
type cardEntry struct {
	incarnation framework.Incarnation
	offer       string
	// nodeProof identifies the node of a process that only its node reaches; otherwise it is empty.
	nodeProof string
	// transportNames is for errors.
	transportNames string
	libraryVersion string // "1.13.1"
	workerAddress  []byte
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (b cardEntry) encode() []byte {
	out := append(make([]byte, 0, 256+len(b.workerAddress)), cardVersion, 0, 0, 0, 0)
	out = binary.LittleEndian.AppendUint64(out, uint64(b.incarnation.ID))
	out = binary.LittleEndian.AppendUint64(out, b.incarnation.Nonce)
	for _, text := range []string{b.offer, b.nodeProof, b.transportNames, b.libraryVersion} {
		out = append(append(out, text...), 0)
	}
	out = append(out, b.workerAddress...)
	binary.LittleEndian.PutUint32(out[1:], crc32.Checksum(out[5:], castagnoli))
	return out
}

// parseCardEntry decodes the entry of a peer. The input is untrusted.
func parseCardEntry(in []byte) (cardEntry, error) {
	const head = 1 + 4 + 8 + 8
	parts, err := base.SplitCardEntry(in, cardVersion, head, 5)
	if err != nil {
		return cardEntry{}, err
	}
	if len(in) > maxCardEntry || binary.LittleEndian.Uint32(in[1:]) != crc32.Checksum(in[5:], castagnoli) {
		return cardEntry{}, base.ErrCardEntry
	}
	b := cardEntry{incarnation: framework.Incarnation{ID: framework.ProcID(binary.LittleEndian.Uint64(in[5:])), Nonce: binary.LittleEndian.Uint64(in[13:])}}
	b.offer, b.nodeProof, b.transportNames, b.libraryVersion, b.workerAddress = string(parts[0]), string(parts[1]), string(parts[2]), string(parts[3]), parts[4]
	return b, nil
}

// majorVersion returns the part of the library's version that must be equal at both ends.
func majorVersion(version string) string {
	m, _, _ := strings.Cut(version, ".")
	return m
}

// resourceNames lists resources with the addresses of interfaces, for people.
func resourceNames(all []ucp.Resource, interfaces []netaddr.Interface) string {
	var words []string
	for _, r := range all {
		word := r.String()
		for _, i := range interfaces {
			if i.Name == r.Device && len(i.Nets) > 0 {
				word += fmt.Sprintf(" (%v)", i.Nets[0].Addr())
			}
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}
