// Package wire encodes and decodes the protocol between a rank and its plugin, which consists of control frames over a
// socket and messages over two rings in shared memory. docs/plugin-protocol.md specifies the bytes. Both ends use it.
// Decoded values are untrusted.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	btlring "github.com/ferrympi/ferry/btl/ring"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/ring"
)

// Version is the version of the protocol. A different version ends the plugin before the first message.
const Version = 1

// The plugin's descriptors.
const (
	ControlFD = 3 // Socket of type SOCK_SEQPACKET. With go-plugin it is idle and closes with the rank.
	MemoryFD  = 4 // Memory with the rings.
	WakeFD    = 5 // An eventfd that wakes the rank.
	ProgramFD = 6 // The program, checked by the rank.
)

// Environment is the variable that a rank sets to Version for a plugin with `protocol: ferry`.
const Environment = "FERRY_PLUGIN"

// Kinds of control frames, the u32 at their start. A frame is a packet of at most ControlLimit bytes. Hello, Ping and End go
// to the plugin, the others to the rank.
const (
	Hello  = 1
	Ready  = 2 // Reply to Hello.
	Failed = 3 // Reply to Hello with the reason as text.
	Ping   = 4 // u64.
	Pong   = 5 // The u64 of Ping, sent by the polling thread, and u64 messages put into the ring.
	End    = 6 // The plugin closes and exits.
)

// ControlLimit is the largest control frame, in bytes.
const ControlLimit = 32 << 10

// Offsets in the memory. Its header has u64 magic, u32 version, u32 cells of each ring.
const (
	Magic      = 0x6772_756c_7079_7266 // "fryplurg", little-endian
	ToPlugin   = 256                   // Header of the ring to the plugin.
	ToRank     = 512                   // Header of the ring to the rank.
	PluginBell = 768                   // Doorbell of the plugin, a futex.
	RankBell   = 832                   // Doorbell of the rank. Its second word is set while the rank sleeps.
	Cells      = 4096                  // Cells of the ring to the plugin, followed by those of the other ring.
)

// Size returns the size of the memory for rings with that number of cells.
func Size(cells int) int { return Cells + 2*cells*ring.CellSize }

// Layout writes the header.
func Layout(mem []byte, cells int) {
	binary.LittleEndian.PutUint64(mem, Magic)
	binary.LittleEndian.PutUint32(mem[8:], Version)
	binary.LittleEndian.PutUint32(mem[12:], uint32(cells))
}

// Check validates the header and returns the number of cells.
func Check(mem []byte) (cells int, err error) {
	if len(mem) < Cells {
		return 0, fmt.Errorf("shared memory has %d bytes, want at least %d", len(mem), Cells)
	}
	cells = int(binary.LittleEndian.Uint32(mem[12:]))
	switch v := binary.LittleEndian.Uint32(mem[8:]); {
	case binary.LittleEndian.Uint64(mem) != Magic:
		return 0, errors.New("shared memory has no ferry header")
	case v != Version:
		return 0, Differ(false, v)
	case cells < 16 || cells&(cells-1) != 0 || Size(cells) != len(mem):
		return 0, fmt.Errorf("invalid header: %d cells in %d bytes", cells, len(mem))
	}
	return cells, nil
}

// Differ returns an error that names the older side. theirs is the version of the plugin if isPlugin is set, and of the
// rank otherwise.
func Differ(isPlugin bool, theirs uint32) error {
	ofRank, ofPlugin := theirs, uint32(Version)
	if isPlugin {
		ofRank, ofPlugin = Version, theirs
	}
	older := "the plugin, which is older, has to be built with a newer ferry"
	if ofRank < ofPlugin {
		older = "this program, which is older, has to be built with a newer ferry"
	}
	return fmt.Errorf("the rank speaks version %d of the plugin protocol, and the plugin version %d: %s", ofRank, ofPlugin, older)
}

// Rings returns header and cells of both rings. Check must have accepted the memory.
func Rings(mem []byte, cells int) (toPlugin, toRank [2][]byte) {
	n := cells * ring.CellSize
	return [2][]byte{mem[ToPlugin : ToPlugin+ring.HeaderSize], mem[Cells : Cells+n]},
		[2][]byte{mem[ToRank : ToRank+ring.HeaderSize], mem[Cells+n : Cells+2*n]}
}

// hotSize is the part of a ring used by small messages, in bytes.
const hotSize = 256 << 10

// Populate maps the pages of small messages in advance, which avoids page faults in the first ones. It ignores errors.
func Populate(mem []byte, cells int) {
	n := cells * ring.CellSize
	for _, from := range []int{Cells, Cells + n} {
		if from%os.Getpagesize() == 0 {
			_ = unix.Madvise(mem[from:from+min(n, hotSize)], unix.MADV_POPULATE_WRITE)
		}
	}
}

// Prefix is the size of u32 kind and u32 path before the body of a message.
const Prefix = 8

// FrameLimit returns the largest frame in a ring with that number of cells.
func FrameLimit(cells int) int { return ring.FrameLimit(cells) - Prefix }

// PromptLimit returns the largest frame for which writer and reader run in parallel. With frames of a quarter of the ring
// they alternate, at a third of the speed.
func PromptLimit(cells int) int { return cells/16*ring.CellSize - ring.WordSize - Prefix }

// wideSize is the smallest message that uses the whole ring, in bytes. On some processors a line is read three times as
// fast after it has left the cache of the other side.
const wideSize = 4 << 10

// Reserve returns n bytes of a ring for a message, or nil if the ring is full.
func Reserve(p *btlring.Producer, n int) []byte {
	if n < wideSize {
		return p.Reserve(n)
	}
	return p.ReserveWide(n)
}

// Kinds of messages. Connect, Leave and Refuse go to the plugin, Frame goes both ways, and the others go to the rank.
const (
	Connect = 1 // Opens a path to a peer, with an even number. Body: Target.
	Frame   = 2 // Body: frame.
	Leave   = 3 // Closes a path or confirms its end. Frames sent before still arrive.
	Refuse  = 4 // Reports an invalid frame of an inbound path. Body: reason.
	Opened  = 5 // Opens the path for Credit frames.
	Accept  = 6 // Reports a path opened by a peer, with an odd number. Body: Caller.
	Credits = 7 // Body: u32 additional frames.
	Idle    = 8 // Body: u64 leading frames of the path that no longer need this process.
	Ended   = 9 // Body: u32 kind of end, and the reason as text.
)

// Credit is the largest number of frames of a path in the plugin.
const Credit = 16

// Kinds of ends of a path.
const (
	Down        = 0
	NeverOpened = 1
	PeerClosed  = 2
	Left        = 3
)

// Put writes the prefix of a message.
func Put(b []byte, kind, path uint32) {
	binary.LittleEndian.PutUint32(b, kind)
	binary.LittleEndian.PutUint32(b[4:], path)
}

// Take splits a message.
func Take(b []byte) (kind, path uint32, body []byte, err error) {
	if len(b) < Prefix {
		return 0, 0, nil, fmt.Errorf("message has %d bytes, want at least %d", len(b), Prefix)
	}
	return binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]), b[Prefix:], nil
}

// Caller is the process that has opened a path, as its greeting identifies it.
type Caller struct {
	// Value of framework.NamespaceHash.
	World uint64
	Nonce uint64
	Rank  uint32
}

// callerSize is the encoded size of a Caller.
const callerSize = 20

func (c Caller) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, c.World)
	b = binary.LittleEndian.AppendUint64(b, c.Nonce)
	return binary.LittleEndian.AppendUint32(b, c.Rank)
}

// Bytes encodes c.
func (c Caller) Bytes() []byte { return c.append(nil) }

// ParseCaller decodes a Caller.
func ParseCaller(b []byte) (c Caller, err error) {
	if len(b) != callerSize {
		return c, fmt.Errorf("caller has %d bytes, want %d", len(b), callerSize)
	}
	return Caller{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint32(b[16:])}, nil
}

// Incarnation looks up the caller among the worlds of a process.
func (c Caller) Incarnation(worlds *framework.Worlds) (framework.Incarnation, error) {
	world, ok := worlds.ByHash(c.World)
	if !ok || c.Nonce == 0 {
		return framework.Incarnation{}, errors.New("unknown namespace of the caller")
	}
	return framework.Incarnation{ID: framework.MakeProcID(world, c.Rank), Nonce: c.Nonce}, nil
}

// CallerOf is the reverse of Incarnation.
func CallerOf(peer framework.Incarnation, worlds *framework.Worlds) Caller {
	return Caller{framework.NamespaceHash(worlds.Proc(peer.ID).Namespace), peer.Nonce, peer.ID.Rank()}
}
