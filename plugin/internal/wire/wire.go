// Package wire is what a rank and its plugin tell each other, as docs/plugin-protocol.md
// has it byte by byte: control frames over a socket, and messages over two rings in shared
// memory. Encoding and decoding only; both ends use it. What is decoded is another
// process's word.
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

// Version is that of the protocol. A difference ends the plugin before a message goes.
const Version = 1

// The plugin's descriptors.
const (
	ControlFD = 3 // a SOCK_SEQPACKET socket; with go-plugin it carries nothing, and ends with the rank
	MemoryFD  = 4 // the memory with the rings
	WakeFD    = 5 // an eventfd that wakes the rank
	ProgramFD = 6 // the program itself, which the rank has checked
)

// Environment names the variable that a rank sets for a plugin with `protocol: ferry`; its value
// is Version.
const Environment = "FERRY_PLUGIN"

// Control frames begin with one of these, a u32. Each is a packet of at most ControlLimit.
const (
	Hello  = 1 // to the plugin, first
	Ready  = 2 // the answer
	Failed = 3 // or this one: why not, in words
	Ping   = 4 // u64, to the plugin
	Pong   = 5 // the same back, from where messages are polled, and u64 messages put into the ring
	End    = 6 // to the plugin: close, and exit
)

// ControlLimit is the size of a control frame, at most.
const ControlLimit = 32 << 10

// Memory begins with a header: u64 magic, u32 version, u32 cells of each ring.
const (
	Magic      = 0x6772_756c_7079_7266 // "fryplurg", little-endian
	ToPlugin   = 256                   // header of the ring to the plugin
	ToRank     = 512                   // and of the one to the rank
	PluginBell = 768                   // on which the plugin sleeps: a doorbell, futex
	RankBell   = 832                   // its second word says that the rank sleeps
	Cells      = 4096                  // first cell of the ring to the plugin; those of the other one follow
)

// Size is that of the memory for rings of so many cells.
func Size(cells int) int { return Cells + 2*cells*ring.CellSize }

// Layout writes the header.
func Layout(mem []byte, cells int) {
	binary.LittleEndian.PutUint64(mem, Magic)
	binary.LittleEndian.PutUint32(mem[8:], Version)
	binary.LittleEndian.PutUint32(mem[12:], uint32(cells))
}

// Check returns the number of cells that the header tells.
func Check(mem []byte) (cells int, err error) {
	if len(mem) < Cells {
		return 0, fmt.Errorf("%d bytes of memory", len(mem))
	}
	cells = int(binary.LittleEndian.Uint32(mem[12:]))
	switch v := binary.LittleEndian.Uint32(mem[8:]); {
	case binary.LittleEndian.Uint64(mem) != Magic:
		return 0, errors.New("the memory is not a rank's")
	case v != Version:
		return 0, Differ(false, v)
	case cells < 16 || cells&(cells-1) != 0 || Size(cells) != len(mem):
		return 0, fmt.Errorf("%d cells in %d bytes", cells, len(mem))
	}
	return cells, nil
}

// Differ says which side is older. plugin says that theirs is the plugin's version; otherwise
// it is the rank's.
func Differ(plugin bool, theirs uint32) error {
	ofRank, ofPlugin := theirs, uint32(Version)
	if plugin {
		ofRank, ofPlugin = Version, theirs
	}
	older := "the plugin, which is older, has to be built with a newer ferry"
	if ofRank < ofPlugin {
		older = "this program, which is older, has to be built with a newer ferry"
	}
	return fmt.Errorf("the rank speaks version %d of the plugin protocol, and the plugin version %d: %s", ofRank, ofPlugin, older)
}

// Rings returns header and cells of both rings of a memory that Check has passed.
func Rings(mem []byte, cells int) (toPlugin, toRank [2][]byte) {
	n := cells * ring.CellSize
	return [2][]byte{mem[ToPlugin : ToPlugin+ring.HeaderSize], mem[Cells : Cells+n]},
		[2][]byte{mem[ToRank : ToRank+ring.HeaderSize], mem[Cells+n : Cells+2*n]}
}

// hot is the part of a ring, in bytes, that small messages use.
const hot = 256 << 10

// Populate has the pages mapped that small messages use, so that the first ones don't wait for the
// system. That is all right where it can't be done.
func Populate(mem []byte, cells int) {
	n := cells * ring.CellSize
	for _, from := range []int{Cells, Cells + n} {
		if from%os.Getpagesize() == 0 {
			_ = unix.Madvise(mem[from:from+min(n, hot)], unix.MADV_POPULATE_WRITE)
		}
	}
}

// A message in a ring: u32 kind, u32 path, and a body.
const Prefix = 8

// FrameLimit is the longest frame of a BTL in a ring of so many cells.
func FrameLimit(cells int) int { return ring.FrameLimit(cells) - Prefix }

// PromptLimit is the longest frame with which both sides work at the same time: one writes some
// while the other reads those before. With quarters of the ring they take turns, at a third of the
// speed.
func PromptLimit(cells int) int { return cells/16*ring.CellSize - ring.WordSize - Prefix }

// wide is the size in bytes from which messages go through all of a ring. Both sides have
// caches of their own, and on some processors a line is had three times as fast when it has left
// the other side's.
const wide = 4 << 10

// Reserve returns n bytes of a ring for a message, or nil.
func Reserve(p *btlring.Producer, n int) []byte {
	if n < wide {
		return p.Reserve(n)
	}
	return p.ReserveWide(n)
}

// The kinds of messages.
const (
	Connect = 1 // to the plugin: a path to a peer, with an even number; body: a Peer
	Frame   = 2 // both ways; body: the frame
	Leave   = 3 // to the plugin: the path is given up; what was sent still arrives
	Refuse  = 4 // to the plugin: a frame of this inbound path makes no sense; body: why
	Opened  = 5 // to the rank: frames may come, Credit of them
	Accept  = 6 // to the rank: a peer has opened a path, with an odd number; body: a Caller
	Credits = 7 // to the rank; body: u32 frames more
	Idle    = 8 // to the rank; body: u64 frames of this path that need nobody any more
	Ended   = 9 // to the rank; body: u32 how, and why in words
)

// Credit is how many frames of a path the plugin keeps at most.
const Credit = 16

// How a path ends.
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
		return 0, 0, nil, fmt.Errorf("a message of %d bytes", len(b))
	}
	return binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]), b[Prefix:], nil
}

// Caller is a process that has opened a path: what its greeting says.
type Caller struct {
	World uint64 // framework.NamespaceHash
	Nonce uint64
	Rank  uint32
}

// callerSize is the length of a Caller.
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
		return c, fmt.Errorf("a caller of %d bytes", len(b))
	}
	return Caller{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint32(b[16:])}, nil
}

// Life finds a caller among the worlds of a process.
func (c Caller) Life(worlds *framework.Worlds) (framework.Life, error) {
	world, ok := worlds.ByHash(c.World)
	if !ok || c.Nonce == 0 {
		return framework.Life{}, errors.New("no group has brought the caller's namespace here")
	}
	return framework.Life{ID: framework.MakeProcID(world, c.Rank), Nonce: c.Nonce}, nil
}

// CallerOf is the reverse of Life.
func CallerOf(peer framework.Life, worlds *framework.Worlds) Caller {
	return Caller{framework.NamespaceHash(worlds.Proc(peer.ID).Namespace), peer.Nonce, peer.ID.Rank()}
}
