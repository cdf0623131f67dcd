package mesh

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// In the handshake each end proves that it knows the key of the acceptor, and names its rank. All
// messages have a fixed length, so there is nothing to parse. Each proof covers the random bytes of
// both ends, so it cannot be replayed.
//
//	hello   magic, both ranks, both nonces, 32 random bytes     connector
//	answer  32 random bytes, proof                              acceptor
//	proof                                                       connector
const (
	helloSize  = 8 + 4 + 4 + 8 + 8 + challengeSize
	answerSize = challengeSize + sha256.Size
	proofSize  = sha256.Size

	challengeSize = 32
)

var magic = [8]byte{'f', 'e', 'r', 'r', 'y', 'm', 't', protocolVersion}

// errWrongKey is the error for a process that does not know the key of the entry that led to it.
var errWrongKey = errors.New("the process at this address does not have the key of the entry")

// hello is the first message of a connector.
type hello struct {
	from, to uint32 // Ranks.
	// Nonces of the processes.
	fromNonce, toNonce uint64
	challenge          [challengeSize]byte
}

func (h *hello) encode() []byte {
	b := make([]byte, 0, helloSize)
	b = append(b, magic[:]...)
	b = binary.BigEndian.AppendUint32(b, h.from)
	b = binary.BigEndian.AppendUint32(b, h.to)
	b = binary.BigEndian.AppendUint64(b, h.fromNonce)
	b = binary.BigEndian.AppendUint64(b, h.toNonce)
	return append(b, h.challenge[:]...)
}

func decodeHello(b [helloSize]byte) (h hello, ok bool) {
	h.from = binary.BigEndian.Uint32(b[8:])
	h.to = binary.BigEndian.Uint32(b[12:])
	h.fromNonce = binary.BigEndian.Uint64(b[16:])
	h.toNonce = binary.BigEndian.Uint64(b[24:])
	copy(h.challenge[:], b[32:])
	return h, [8]byte(b[:8]) == magic
}

// The role is the first byte of a proof, so that neither proof can serve as the other.
const (
	roleAcceptor  = 'a'
	roleConnector = 'c'
)

func (h *hello) proof(role byte, key [keySize]byte, namespace string, answer [challengeSize]byte) []byte {
	m := hmac.New(sha256.New, key[:])
	m.Write([]byte{role})
	m.Write(h.encode())
	m.Write(answer[:])
	m.Write([]byte(namespace))
	return m.Sum(nil)
}

// proveAsConnector performs the connector's part, and returns the last proof for the caller to
// send. e is the entry of rank h.to.
func proveAsConnector(rw io.ReadWriter, namespace string, h hello, e entry) (proof []byte, err error) {
	if _, err := rand.Read(h.challenge[:]); err != nil {
		return nil, err
	}
	if _, err := rw.Write(h.encode()); err != nil {
		return nil, err
	}
	var b [answerSize]byte
	if _, err := io.ReadFull(rw, b[:]); err != nil {
		return nil, err
	}
	answer := [challengeSize]byte(b[:challengeSize])
	if !hmac.Equal(b[challengeSize:], h.proof(roleAcceptor, e.key, namespace, answer)) {
		return nil, errWrongKey
	}
	return h.proof(roleConnector, e.key, namespace, answer), nil
}

// entryIndex returns the index of the acceptor's entry that the connector has, or -1.
func (h *hello) entryIndex(entries []entry) int {
	return slices.IndexFunc(entries, func(e entry) bool { return e.nonce == h.toNonce })
}

// proveAsAcceptor performs the acceptor's part for a connector that has one of entries. An error is
// the fault of the connector.
func (p *endpoint) proveAsAcceptor(rw io.ReadWriter, entries ...entry) (hello, error) {
	var b [helloSize]byte
	if _, err := io.ReadFull(rw, b[:]); err != nil {
		return hello{}, fmt.Errorf("no hello: %w", err)
	}
	h, ok := decodeHello(b)
	at := h.entryIndex(entries)
	switch {
	case !ok:
		return h, errors.New("not a hello of this version")
	case h.to != p.id.Proc.Rank || at < 0:
		return h, fmt.Errorf("hello for rank %d of another process or job", h.to)
	case !p.isRank(h.from) || h.from == h.to:
		return h, fmt.Errorf("hello from rank %d of %d", h.from, p.rankLimit.Load())
	}
	var answer [challengeSize]byte
	if _, err := rand.Read(answer[:]); err != nil {
		return h, err
	}
	key := entries[at].key
	ours := h.proof(roleAcceptor, key, p.id.Proc.Namespace, answer)
	if _, err := rw.Write(append(answer[:], ours...)); err != nil {
		return h, err
	}
	var theirs [proofSize]byte
	if _, err := io.ReadFull(rw, theirs[:]); err != nil {
		return h, fmt.Errorf("no proof: %w", err)
	}
	if !hmac.Equal(theirs[:], h.proof(roleConnector, key, p.id.Proc.Namespace, answer)) {
		return h, errors.New("wrong key")
	}
	return h, nil
}
