package ucx

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/netaddr"
	"github.com/ferrympi/ferry/internal/ucp"
)

// blobVersion is that of blob's encoding and of what modules send one another.
const blobVersion = 1

// most is how long a blob may be, in bytes: with other cards it has to fit into the payload of
// a group construct, which is 64 KiB.
const most = 48 << 10

// blob is this component's part of a business card:
//
//	version, checksum of all that follows (4 bytes, CRC-32C),
//	life of the process (id and nonce, 8 bytes each),
//	offer, node, transports and version of the library, each with a zero behind it,
//	the worker's address.
//
// UCX takes an address without a length, and believes it. So nothing but what was
// checked goes there; numbers are little-endian.
type blob struct {
	life       framework.Life
	offer      string
	node       string // of a process that only its node reaches; otherwise empty
	transports string // for people
	library    string // "1.13.1"
	address    []byte
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (b blob) encode() []byte {
	out := append(make([]byte, 0, 256+len(b.address)), blobVersion, 0, 0, 0, 0)
	out = binary.LittleEndian.AppendUint64(out, uint64(b.life.ID))
	out = binary.LittleEndian.AppendUint64(out, b.life.Nonce)
	for _, text := range []string{b.offer, b.node, b.transports, b.library} {
		out = append(append(out, text...), 0)
	}
	out = append(out, b.address...)
	binary.LittleEndian.PutUint32(out[1:], crc32.Checksum(out[5:], castagnoli))
	return out
}

var errBlob = errors.New("its entry in the business card makes no sense")

// parseBlob takes a peer's entry apart. It is a stranger's bytes.
func parseBlob(in []byte) (blob, error) {
	const head = 1 + 4 + 8 + 8
	if len(in) == 0 {
		return blob{}, errors.New("its business card has no entry for it")
	}
	if in[0] != blobVersion {
		return blob{}, fmt.Errorf("it speaks version %d, and this process version %d", in[0], blobVersion)
	}
	if len(in) < head || len(in) > most || binary.LittleEndian.Uint32(in[1:]) != crc32.Checksum(in[5:], castagnoli) {
		return blob{}, errBlob
	}
	b := blob{life: framework.Life{ID: framework.ProcID(binary.LittleEndian.Uint64(in[5:])), Nonce: binary.LittleEndian.Uint64(in[13:])}}
	parts := bytes.SplitN(in[head:], []byte{0}, 5)
	if len(parts) < 5 || len(parts[0]) == 0 || len(parts[4]) == 0 {
		return blob{}, errBlob
	}
	b.offer, b.node, b.transports, b.library, b.address = string(parts[0]), string(parts[1]), string(parts[2]), string(parts[3]), parts[4]
	return b, nil
}

// major is the part of the library's version that both ends need the same of.
func major(version string) string {
	m, _, _ := strings.Cut(version, ".")
	return m
}

// listed returns resources in words.
func listed(all []ucp.Resource) string {
	var words []string
	for _, r := range all {
		words = append(words, r.String())
	}
	return strings.Join(words, " ")
}

// listedWithAddresses returns resources in words, with the addresses of their interfaces.
func listedWithAddresses(all []ucp.Resource, interfaces []netaddr.Interface) string {
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
