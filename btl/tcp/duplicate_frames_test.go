package tcp

import (
	"bytes"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// by makes another link to b at a place, which the test writes to as the peer would.
func (j *job) by(b *process, p *peerConn, slot int) net.Conn {
	j.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		j.t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		j.t.Fatal(err)
	}
	j.t.Cleanup(func() { c.Close() })
	far, err := l.(*net.TCPListener).AcceptTCP()
	if err != nil {
		j.t.Fatal(err)
	}
	f, err := far.File()
	far.Close()
	if err != nil {
		j.t.Fatal(err)
	}
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err == nil {
		err = p.addLink(&link{module: b.module, peer: p, slot: slot, fd: fd}, p.path.ackedUpTo)
	}
	if err != nil {
		j.t.Fatal(err)
	}
	return c
}

// A link stalls within a frame, and its sender retransmits the frame on another one. Then the rest of
// the first copy arrives.
func TestLink_FrameArrivesByTwoLinks_IsDeliveredOnce(t *testing.T) {
	for _, c := range []struct {
		name           string
		size, gathered int
		place          bool
	}{
		{"small", 5000, 0, false},
		{"in a body of its own", 20_000, 0, false},
		{"gathered, with no place", 20_000, 40, false},
		{"in place", 20_000, 40, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := newJob(t, 2, nil)
			a, b, _ := j.met()
			p := b.peers.byIncarnation[a.incarnation]
			slow, fast := j.by(b, p, 1), j.by(b, p, 2)
			placed := make([]byte, c.size-c.gathered)
			if c.place {
				b.place = func(_ []byte, size int) []byte {
					if size == len(placed) {
						return placed
					}
					return nil
				}
			}
			due := p.path.nextExpected
			frame := func(k uint64) []byte {
				h := header{bodySize: c.size + int(k), kind: kindFrame, gatherSize: c.gathered, number: due + k}
				body := bytes.Repeat([]byte{byte('a' + k)}, headerSize+h.bodySize)
				h.encode(body)
				return body
			}
			slow.Write(frame(0)[:c.size/2])
			j.until("half of the frame", func() bool {
				l := p.linksBySlot[1]
				return l.readMode != modeHeader && l.bodyReceived+l.writePos-l.readPos >= c.size/2-headerSize
			})
			fast.Write(append(frame(0), frame(1)...))
			j.until("two frames", func() bool { return p.path.nextExpected == due+2 })
			slow.Write(append(append(frame(0)[c.size/2:], frame(1)...), frame(2)...))
			j.until("a third one", func() bool { return p.path.nextExpected >= due+3 })
			got, want := b.got[1:], [][]byte{frame(0), frame(1), frame(2)}
			if c.place {
				if want = want[1:]; b.placed != 1 || !bytes.Equal(placed, frame(0)[headerSize+c.gathered:]) {
					t.Errorf("payload was placed %d times", b.placed)
				}
			}
			if len(got) != len(want) {
				t.Fatalf("%d frames, want %d", len(got), len(want))
			}
			for i := range want {
				if !bytes.Equal(got[i], want[i][headerSize:]) {
					t.Errorf("frame %d is one of %d bytes %q", i, len(got[i]), got[i][len(got[i])-1])
				}
			}
		})
	}
}

// A link stalls within a frame, and a waiting rank peeks at the copy of another link.
func TestPeek_FrameArrivesByTwoLinks_DropsThePeekedOne(t *testing.T) {
	for _, size := range []int{5000, 20_000} {
		j := newJob(t, 2, nil)
		a, b, _ := j.met()
		p := b.peers.byIncarnation[a.incarnation]
		slow, fast := j.by(b, p, 1), j.by(b, p, 2)
		due := p.path.nextExpected
		frame := func(k uint64) []byte {
			h := header{bodySize: size + int(k), kind: kindFrame, number: due + k}
			body := bytes.Repeat([]byte{byte('a' + k)}, headerSize+h.bodySize)
			h.encode(body)
			return body
		}
		peeked := func(k uint64) func() bool {
			return func() bool {
				got := p.inboundPath.source.Peek(1)
				if got == nil {
					return false
				}
				if !bytes.Equal(got, frame(k)[headerSize:]) {
					t.Fatalf("peeked at %d bytes %q, want frame %d", len(got), got[0], k)
				}
				p.inboundPath.source.Drop()
				return true
			}
		}
		slow.Write(frame(0)[:size/2])
		j.until("half of the frame", func() bool {
			l := p.linksBySlot[1]
			return l.readMode != modeHeader && l.bodyReceived+l.writePos-l.readPos >= size/2-headerSize
		})
		fast.Write(frame(0))
		j.until("frame 0", peeked(0), b)
		slow.Write(frame(0)[size/2:])
		j.until("the rest is skipped", func() bool { return p.linksBySlot[1].readMode == modeHeader })
		slow.Write(frame(1))
		j.until("frame 1", peeked(1), b)
		fast.Write(frame(2))
		j.until("frame 2", peeked(2), b)
		if p.path.nextExpected != due+3 || p.path.damagedLinks != 0 || p.path.countUp() != 3 {
			t.Errorf("%d frames, %d damages, %d links", p.path.nextExpected-due, p.path.damagedLinks, p.path.countUp())
		}
	}
}
