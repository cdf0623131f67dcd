package wireup

import (
	"cmp"
	"errors"
	"fmt"
	"sync"

	"github.com/fxamacker/cbor/v2"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/internal/strictcbor"
	"github.com/ferrympi/ferry/pml"
)

// Version is that of all encodings of this package. It changes with any of their types.
const Version = 5

// Payload is the bytes of a member in a group construct, as a CBOR array. Capabilities and Card are left encoded, because members
// with equal bytes need no decoding.
type Payload struct {
	_       struct{} `cbor:",toarray"`
	Version uint8
	// Incarnation of the member.
	Nonce uint64
	// Of its PMLs, by preference; see EncodeCapabilities.
	Capabilities cbor.RawMessage
	Card         cbor.RawMessage // See EncodeCard.
	// Candidate ids for the communicator of this construct, from the table of the first PML; see package cid.
	IDs []byte
	// Of Card. A later card has a larger number.
	Edition uint32
	// Members of this construct that are disconnected from the sender.
	Ended []Ended
	// Likewise, for the communicator that levels create. Empty above level 0 and without levels.
	GroupIDs []byte
	// Likewise; ranks are those in the whole group.
	GroupEnded []Ended
	// Faults below the level of this construct.
	Faults Faults
}

// Ended is a member that is disconnected from the sender, in either direction.
type Ended struct {
	_    struct{} `cbor:",toarray"`
	Rank uint32   // In the group.
	// Of the incarnation.
	Nonce uint64
	// Number of reconnects of the two.
	Epoch uint32
}

// PayloadFrame is more than the CBOR around the parts of a payload needs.
const PayloadFrame = 80

// EndedSize is more than an Ended needs.
const EndedSize = 24

// Limits of the claims of a member. They bound memory. A program has a handful of each.
const (
	maxModules   = 16
	maxAddresses = 64
	maxText      = 1 << 10
	// MaxEnded is the largest number of Ended in a payload. Others wait for the next communicator.
	MaxEnded = 1024
)

// codec is created at first use, because package initialization must not run code.
var codec = sync.OnceValue(func() strictcbor.Codec { return strictcbor.New(1<<13, cbor.UTF8RejectInvalid) })

// Encode returns the bytes of a payload. It sets the version.
func (p Payload) Encode() ([]byte, error) {
	p.Version = Version
	return codec().Marshal(p)
}

// DecodePayload decodes the payload of another process. Capabilities and card stay encoded.
func DecodePayload(b []byte) (Payload, error) {
	var p Payload
	if len(b) > bootstrap.MaxPayload {
		return p, fmt.Errorf("%d bytes, more than %d", len(b), bootstrap.MaxPayload)
	}
	if err := codec().Unmarshal(b, &p); err != nil {
		return p, cmp.Or(checkVersion(b), err) // The array of another version has other elements.
	}
	if p.Version != Version {
		return p, checkVersion(b)
	}
	if p.Nonce == 0 {
		return p, errors.New("an incarnation without a nonce")
	}
	if n := max(len(p.Ended), len(p.GroupEnded)); n > MaxEnded {
		return p, fmt.Errorf("%d processes with which nothing is exchanged, at most %d", n, MaxEnded)
	}
	return p, p.Faults.check()
}

// checkVersion returns an error that names the version of a payload, if that is another one.
func checkVersion(b []byte) error {
	var parts []cbor.RawMessage
	var version uint8
	if codec().Unmarshal(b, &parts) != nil || len(parts) == 0 || codec().Unmarshal(parts[0], &version) != nil || version == Version {
		return nil
	}
	return fmt.Errorf("version %d, and this program speaks %d: build all programs of a job with the same version of ferry", version, Version)
}

// EncodeEnded encodes the payload of the second construct of members that reconnect.
func EncodeEnded(list []Ended) ([]byte, error) { return codec().Marshal(list) }

// DecodeEnded is the reverse of EncodeEnded.
func DecodeEnded(b []byte) ([]Ended, error) {
	var list []Ended
	if err := codec().Unmarshal(b, &list); err != nil {
		return nil, err
	}
	if len(list) > MaxEnded {
		return nil, fmt.Errorf("%d members to reconnect with, at most %d", len(list), MaxEnded)
	}
	return list, nil
}

type capability struct {
	_        struct{} `cbor:",toarray"`
	PML      string
	Version  uint32
	Priority int32
	Detail   string
}

// EncodeCapabilities encodes the capabilities of a process's PMLs, by preference. Bytes that another process
// refuses are an error.
func EncodeCapabilities(offers []pml.Capabilities) ([]byte, error) {
	var list []capability
	for _, o := range offers {
		list = append(list, capability{PML: o.PML, Version: o.Version, Priority: int32(o.Priority), Detail: o.Detail})
	}
	b, err := codec().Marshal(list)
	if err == nil {
		_, err = DecodeCapabilities(b)
	}
	if err != nil {
		return nil, fmt.Errorf("capabilities of this process: %w", err)
	}
	return b, nil
}

// DecodeCapabilities is the reverse of EncodeCapabilities.
func DecodeCapabilities(b []byte) ([]pml.Capabilities, error) {
	var list []capability
	if err := codec().Unmarshal(b, &list); err != nil {
		return nil, err
	}
	if len(list) == 0 || len(list) > maxModules {
		return nil, fmt.Errorf("%d offers, want 1 to %d", len(list), maxModules)
	}
	out := make([]pml.Capabilities, len(list))
	for i, c := range list {
		if len(c.PML) == 0 || len(c.PML) > maxText || len(c.Detail) > maxText {
			return nil, errors.New("an offer's text is empty or too long")
		}
		out[i] = pml.Capabilities{PML: c.PML, Version: c.Version, Priority: int(c.Priority), Detail: c.Detail}
	}
	return out, nil
}
