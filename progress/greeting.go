package progress

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/framework"
)

// GreetingSize is the length of a greeting in bytes.
const GreetingSize = 28

// Greet returns the first bytes of this process on a new connection to a peer. They identify the process, and prove that it has the peer's card, which
// has the peer's nonce. A process that can read the connection can repeat them. Transports over a network need a stronger proof.
//
// The bytes are, little-endian, u64 nonce of the peer, u64 framework.NamespaceHash of the own namespace, u64 own nonce, u32 own rank.
func (e Env) Greet(peer framework.Incarnation) []byte {
	le, own := binary.LittleEndian, e.Identity.Proc
	b := le.AppendUint64(make([]byte, 0, GreetingSize), peer.Nonce)
	b = le.AppendUint64(b, framework.NamespaceHash(own.Namespace))
	b = le.AppendUint64(b, e.Self.Nonce)
	return le.AppendUint32(b, own.Rank)
}

// Greeted returns the incarnation that has sent a greeting. b is untrusted. The error is the reason to refuse the caller, and may be sent to it.
func (e Env) Greeted(b []byte) (framework.Incarnation, error) {
	le := binary.LittleEndian
	if len(b) != GreetingSize {
		return framework.Incarnation{}, fmt.Errorf("invalid greeting: %d bytes instead of %d", len(b), GreetingSize)
	}
	if le.Uint64(b) != e.Self.Nonce {
		return framework.Incarnation{}, errors.New("wrong process: its nonce is not that of the card")
	}
	world, known := e.Worlds.ByHash(le.Uint64(b[8:]))
	nonce := le.Uint64(b[16:])
	if !known || nonce == 0 {
		return framework.Incarnation{}, errors.New("unknown namespace of the caller: no group has brought it here")
	}
	return framework.Incarnation{ID: framework.MakeProcID(world, le.Uint32(b[24:])), Nonce: nonce}, nil
}
