package ofi

import (
	"encoding/binary"
	"errors"

	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/base"
)

// A control frame is an untagged message of a module. Its first byte is its type.
const (
	frameControl byte = iota // A control message of the protocol follows.
	frameSyncAck             // The nonce of the sender and a tag follow: a synchronous message has matched.
	frameFlush               // Nothing follows. The receiver ignores it.
)

// Sizes of frames, in bytes.
const (
	controlLimit     = 256
	controlFrameSize = 1 + controlLimit
	syncAckSize      = 1 + 8 + 8
)

// controlReceives holds the state of control frames.
type controlReceives struct {
	// bufferBlock is pinned, and has a buffer for each control receive.
	bufferBlock       []byte
	consecutiveFaults int
	injectBuf         []byte
	flushFrame        []byte
}

// maxConsecutiveFaults is the number of failed control receives in a row, and of stray errors in a row,
// after which the module fails.
const maxConsecutiveFaults = 1000

// postControlReceives posts the receives of control frames.
func (m *module) postControlReceives(n int) error {
	buffers := make([]byte, n*controlFrameSize)
	m.controlReceives.bufferBlock = buffers
	m.Pins.Pin(&buffers[0])
	if m.registrations.isRequired {
		r, err := m.ep.Register(buffers)
		if err != nil {
			return err
		}
		m.registrations.regions = append(m.registrations.regions, &region{buf: buffers, handle: r})
	}
	for i := range n {
		s, err := m.takeSlot(base.SlotControlReceive, nil, nil)
		if err != nil {
			return err
		}
		s.Buf = buffers[i*controlFrameSize : (i+1)*controlFrameSize]
		if code := m.startUrgent(s); code != 0 {
			return m.callError("receive", mtl.NoEndpoint, code)
		}
	}
	return nil
}

// completeControlReceive handles a control frame and posts its buffer again, also after an error.
func (m *module) completeControlReceive(s *slot, ev *libfabric.Event) {
	s.IsPosted = false
	switch {
	case ev.Err == 0:
		m.controlReceives.consecutiveFaults = 0
		m.handleFrame(s.Buf[:min(ev.Length, uint64(len(s.Buf)))])
	case ev.Err == libfabric.Truncated: // Not a frame of ferry, whose frames fit.
	default:
		m.controlReceives.consecutiveFaults++
	}
	if m.Err != nil {
		return
	}
	if code := m.startUrgent(s); code != 0 || m.controlReceives.consecutiveFaults > maxConsecutiveFaults {
		m.failModule(errors.New("receives of control messages fail: " + m.errnoText(max(code, ev.Err))))
	}
}

// handleFrame handles a frame, which may come from an unknown process. Malformed frames are ignored.
func (m *module) handleFrame(b []byte) {
	switch {
	case len(b) > 1 && b[0] == frameControl:
		m.Env.Upcall.Control(b[1:])
	case len(b) == syncAckSize && b[0] == frameSyncAck:
		m.receiveSyncAck(binary.LittleEndian.Uint64(b[1:]), binary.LittleEndian.Uint64(b[9:]))
	}
}
