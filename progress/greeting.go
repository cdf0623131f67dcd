package progress

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/framework"
)

// GreetingSize is the length of a greeting in bytes.
const GreetingSize = 28

// Greet returns what this process says first to a peer on a new connection: who it is,
// and that it has the peer's card, because the card holds the peer's nonce. Whoever can
// listen can repeat it: over a network, a transport proves more.
//
// In the order of the bytes, little-endian: u64 the peer's nonce, u64
// framework.NamespaceHash of its own namespace, u64 its own nonce, u32 its rank.
func (e Env) Greet(peer framework.Life) []byte {
	le, own := binary.LittleEndian, e.Identity.Proc
	b := le.AppendUint64(make([]byte, 0, GreetingSize), peer.Nonce)
	b = le.AppendUint64(b, framework.NamespaceHash(own.Namespace))
	b = le.AppendUint64(b, e.Self.Nonce)
	return le.AppendUint32(b, own.Rank)
}

// Greeted returns who has greeted this process. What b holds is a stranger's word; an
// error says why the caller is refused, and may be shown to it.
func (e Env) Greeted(b []byte) (framework.Life, error) {
	le := binary.LittleEndian
	if len(b) != GreetingSize {
		return framework.Life{}, fmt.Errorf("a greeting of %d bytes, not %d", len(b), GreetingSize)
	}
	if le.Uint64(b) != e.Self.Nonce {
		return framework.Life{}, errors.New("this is another process than the one of the card")
	}
	world, known := e.Worlds.ByHash(le.Uint64(b[8:]))
	nonce := le.Uint64(b[16:])
	if !known || nonce == 0 {
		return framework.Life{}, errors.New("no group has brought the caller's namespace here")
	}
	return framework.Life{ID: framework.MakeProcID(world, le.Uint32(b[24:])), Nonce: nonce}, nil
}
