package btltest

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// path is the protocol's end of a path from a node to another one, or to itself.
type path struct {
	btl.Endpoint
	world    *world
	from, to *node
	// Whether a Reserve has succeeded.
	isOpened bool
	// Number of payloads that the module may still read.
	lentCount int
}

// Unwrap gives framework.As access to the abilities of the module's endpoint.
func (p *path) Unwrap() any { return p.Endpoint }

// Reserve implements btl.Endpoint.
func (p *path) Reserve(n int, placement btl.Placement) []byte {
	b := p.Endpoint.Reserve(n, placement)
	p.isOpened = p.isOpened || b != nil
	return b
}

func (n *node) connect(to *node) *path {
	p := &path{world: n.world, from: n, to: to}
	var err error
	n.locked(func() {
		n.latestPaths[to.peer.Incarnation] = p
		p.Endpoint, err = n.module.Connect(to.peer)
	})
	if err != nil {
		n.world.Fatalf("connect rank %d with rank %d: %w", n.rank, to.rank, err)
	}
	return p
}

// greet connects and carries a frame.
func (n *node) greet(to *node) *path {
	p := n.connect(to)
	p.carry(pattern(0, 40))
	return p
}

// frameLimit returns the frame limit.
func (p *path) frameLimit() int { return p.from.module.Caps().FrameLimit }

// close closes the path.
func (p *path) close() { p.from.locked(p.Close) }

// trySend sends a frame if the path accepts it now. The sender's lock is held.
func (p *path) trySend(frame []byte) (sent bool) {
	b := p.Reserve(len(frame), btl.RingStart)
	if b == nil {
		return false
	}
	if len(b) != len(frame) {
		p.world.Errorf("Reserve(%d) returned %d bytes", len(frame), len(b))
	}
	p.Commit(copy(b, frame))
	return true
}

// send sends frames. It polls all processes while the path is full.
func (p *path) send(frames ...[]byte) {
	for _, frame := range frames {
		p.from.until(fmt.Sprintf("a send of %d bytes", len(frame)), func() bool {
			sent := p.trySend(frame)
			if lost := p.from.lossOf(p.to); lost != nil {
				p.world.Fatalf("the path was lost: %w", lost)
			}
			return sent
		})
	}
}

// patience is the number of further polls after a wrong frame. Later frames distinguish a lost
// frame from a reordered one.
const patience = 1000

// awaitFrames waits until the receiver has exactly these frames.
func (p *path) awaitFrames(frames ...[]byte) {
	n, right, left := p.to, 0, patience
	n.until(fmt.Sprintf("%d frames", len(frames)), func() bool {
		come := min(len(n.receivedFrames), len(frames))
		for right < come && bytes.Equal(n.receivedFrames[right].frame, frames[right]) {
			right++
		}
		if right < come {
			left--
		}
		return len(n.receivedFrames) >= len(frames) || n.lossOf(p.from) != nil || left == 0 || p.world.Context().Err() != nil
	})
	n.takeFrames(p.from, frames)
}

// carry sends frames and waits for their arrival.
func (p *path) carry(frames ...[]byte) {
	p.send(frames...)
	p.awaitFrames(frames...)
}

// burst sends up to most frames, at least one, as long as the path accepts them while its receiver
// does not poll. send creates and sends frame k with the lock held.
func (p *path) burst(most int, send func(k int) (frame []byte, sent bool)) (frames [][]byte) {
	for k := range most {
		var frame []byte
		var sent bool
		try := func() { frame, sent = send(k) }
		switch p.from.locked(try); {
		case sent || p.from == p.to:
		case k == 0: // The sender may not have noticed yet that the receiver has processed its frames.
			p.from.until("room in an empty path", func() bool { try(); return sent })
		default:
			p.from.poll() // The sender's own progress may make space, for example in a socket.
			p.from.locked(try)
		}
		if !sent {
			break
		}
		frames = append(frames, frame)
	}
	if len(frames) == 0 {
		p.world.Fatalf("an empty path takes no frame")
	}
	return frames
}

// growLimit is the number of bytes that a module may buffer for a receiver that does not poll. The
// buffers of a socket are smaller.
const growLimit = 64 << 20

// fillPath sends frames of up to size bytes by send, with the lock held, until the path is full.
func (p *path) fillPath(size int, send func(frame []byte) bool) [][]byte {
	size = min(size, p.frameLimit())
	frames := p.burst(growLimit/size, func(k int) ([]byte, bool) {
		frame := pattern(k, size-k%7)
		return frame, send(frame)
	})
	if len(frames) == growLimit/size {
		p.world.Fatalf("the path accepted %d frames of %d bytes for a receiver that does not poll", len(frames), size)
	}
	return frames
}

// ability returns an optional ability, or skips the case.
func ability[A any](w *world, of any) A {
	a, ok := framework.As[A](of)
	if !ok {
		w.Skipf("the module lacks the optional %s", strings.TrimPrefix(fmt.Sprintf("%T", &a), "*"))
	}
	return a
}

// pattern returns frame number k of n bytes. Some contain small numbers that look like a module's
// own headers.
func pattern(k, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		if k%3 == 0 {
			b[i] = byte(i & 1 * (k/3 + 1) % 4)
		} else {
			b[i] = byte(k*7 + i*13 + i>>8)
		}
	}
	return b
}
