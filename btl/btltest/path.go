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
	w        *world
	from, to *node
	opened   bool // a Reserve has succeeded
	lent     int  // payloads that are read where they lie
}

// Unwrap has framework.As find the abilities of the module's endpoint.
func (p *path) Unwrap() any { return p.Endpoint }

// Reserve implements btl.Endpoint.
func (p *path) Reserve(n int) []byte {
	b := p.Endpoint.Reserve(n)
	p.opened = p.opened || b != nil
	return b
}

func (n *node) connect(to *node) *path {
	p := &path{w: n.w, from: n, to: to}
	var err error
	n.do(func() {
		n.paths[to.peer.Life] = p
		p.Endpoint, err = n.module.Connect(to.peer)
	})
	if err != nil {
		n.w.Fatalf("connect of rank %d with rank %d: %w", n.rank, to.rank, err)
	}
	return p
}

// greet connects, and has a frame come that way.
func (n *node) greet(to *node) *path {
	p := n.connect(to)
	p.carry(pattern(0, 40))
	return p
}

// limit is that of the frames.
func (p *path) limit() int { return p.from.module.Caps().FrameLimit }

// close gives the path up.
func (p *path) close() { p.from.do(p.Close) }

// put sends a frame if the path takes it now. The sender's lock is held.
func (p *path) put(frame []byte) (sent bool) {
	b := p.Reserve(len(frame))
	if b == nil {
		return false
	}
	if len(b) != len(frame) {
		p.w.Errorf("Reserve(%d) returned %d bytes", len(frame), len(b))
	}
	p.Commit(copy(b, frame))
	return true
}

// send sends frames, polling everybody while it would block.
func (p *path) send(frames ...[]byte) {
	for _, frame := range frames {
		p.from.until(fmt.Sprintf("a send of %d bytes", len(frame)), func() bool {
			sent := p.put(frame)
			if lost := p.from.missing(p.to); lost != nil {
				p.w.Fatalf("the path was lost: %w", lost)
			}
			return sent
		})
	}
}

// patience is how many polls longer arrive looks when a wrong frame has come:
// what follows tells a frame that was lost from one that was overtaken.
const patience = 1000

// arrive waits until the receiver has all of frames, and nothing else.
func (p *path) arrive(frames ...[]byte) {
	n, right, left := p.to, 0, patience
	n.until(fmt.Sprintf("%d frames", len(frames)), func() bool {
		come := min(len(n.got), len(frames))
		for right < come && bytes.Equal(n.got[right].frame, frames[right]) {
			right++
		}
		if right < come {
			left--
		}
		return len(n.got) >= len(frames) || n.missing(p.from) != nil || left == 0 || p.w.Context().Err() != nil
	})
	n.take(p.from, frames)
}

// carry sends frames and has them arrive.
func (p *path) carry(frames ...[]byte) {
	p.send(frames...)
	p.arrive(frames...)
}

// burst sends up to most frames, or as many as the path takes while its receiver does not
// poll, but one at least. send makes frame k and tries to send it, with the lock held.
func (p *path) burst(most int, send func(k int) (frame []byte, sent bool)) (frames [][]byte) {
	for k := range most {
		var frame []byte
		var sent bool
		try := func() { frame, sent = send(k) }
		switch p.from.do(try); {
		case sent || p.from == p.to:
		case k == 0: // what the receiver has taken may not be known here yet, and it has to say so again
			p.from.until("room in an empty path", func() bool { try(); return sent })
		default:
			p.from.poll() // its own progress may make room once: a socket takes more
			p.from.do(try)
		}
		if !sent {
			break
		}
		frames = append(frames, frame)
	}
	if len(frames) == 0 {
		p.w.Fatalf("an empty path takes no frame")
	}
	return frames
}

// growLimit is what a module may buffer for a receiver that doesn't poll before
// the kit calls it growth: the buffers of a socket are below it.
const growLimit = 64 << 20

// fill has send send frames of up to size bytes, with the lock held, until the path is full.
func (p *path) fill(size int, send func(frame []byte) bool) [][]byte {
	size = min(size, p.limit())
	frames := p.burst(growLimit/size, func(k int) ([]byte, bool) {
		frame := pattern(k, size-k%7)
		return frame, send(frame)
	})
	if len(frames) == growLimit/size {
		p.w.Fatalf("%d frames of %d bytes were taken for a receiver that doesn't poll", len(frames), size)
	}
	return frames
}

// ability returns an optional one, or skips the case.
func ability[A any](w *world, of any) A {
	a, ok := framework.As[A](of)
	if !ok {
		w.Skipf("it lacks the optional %s", strings.TrimPrefix(fmt.Sprintf("%T", &a), "*"))
	}
	return a
}

// pattern makes frame number k of n bytes. Some look like small numbers, such as a
// module's own bookkeeping.
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
