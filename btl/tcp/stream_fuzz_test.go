package tcp

import (
	"bytes"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/framework"
)

// connectedPair returns both ends of a connection, the second as a link of a new pair.
func connectedPair(t testing.TB, l *net.TCPListener, m *module, peer framework.Incarnation) (*net.TCPConn, *peerConn, *link) {
	t.Helper()
	near, err := net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr))
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	file, err := far.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		t.Fatal(err)
	}
	p := m.newPeerConn(peer, nil)
	p.peerLimits, p.stateIDs.remote = m.localLimits(), 1
	k := &link{module: m, peer: p, fd: fd, localAddr: l.Addr().(*net.TCPAddr).AddrPort(), remoteAddr: near.LocalAddr().(*net.TCPAddr).AddrPort()}
	if err := p.addLink(k, 0); err != nil {
		t.Fatal(err)
	}
	return near, p, k
}

// A member of the job writes arbitrary bytes after the handshake. The receiver delivers frames within
// its limit, and buffers at most its window.
func FuzzStream(f *testing.F) {
	encode := func(h header, body string) []byte {
		h.bodySize = len(body)
		b := make([]byte, headerSize)
		h.encode(b)
		return append(b, body...)
	}
	start := append(encode(header{kind: kindOpen, number: 0}, "12345678"), encode(header{kind: kindFrame, number: 1}, "frame")...)
	for _, b := range [][]byte{
		encode(header{kind: kindFrame, number: 2, gatherSize: 3}, "gathered"), encode(header{kind: kindFrame, number: 4}, "early"), encode(header{kind: kindFrame, number: 2, flags: flagAckRequest}, "ask"),
		encode(header{kind: kindLeave, number: 2}, ""), encode(header{kind: kindBye, number: 2}, ""), encode(header{kind: kindRefuse, number: 2}, "12345678reason"),
		encode(header{kind: kindAck, ackedUpTo: 2}, ""), encode(header{kind: kindAck, flags: flagAckRequest, number: 9}, ""), encode(header{kind: kindOpen, number: 2}, "87654321"),
	} {
		f.Add(b)
		f.Add(append(bytes.Clone(start), b...))
	}
	const window = 64 << 10
	b := newJobOf(f, 1, func(_ int, p *params) { p.Window = window }).procs[0]
	b.alone = true
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { l.Close() })
	peer := framework.Incarnation{ID: framework.MakeProcID(0, 1)}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > window {
			return
		}
		peer.Nonce++
		b.got, b.lost = nil, nil
		near, p, k := connectedPair(t, l, b.module, peer)
		defer near.Close()
		if _, err := near.Write(in); err != nil {
			t.Fatal(err)
		}
		if err := near.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		for i := 0; i < 20 && k.state < connClosed; i++ {
			b.pacer.pollsUntilSockets = 0
			b.Poll()
		}
		if p.reorderBuffer.bytesBuffered > 2*window {
			t.Errorf("%d bytes are stored, with a window of %d", p.reorderBuffer.bytesBuffered, window)
		}
		for _, frame := range b.got {
			if len(frame) == 0 || len(frame) > b.config.frameLimit {
				t.Errorf("a frame of %d bytes, with a limit of %d", len(frame), b.config.frameLimit)
			}
		}
		b.Forget(peer)
		b.Poll()
	})
}

// An accepted range is in order.
func FuzzPortRange(f *testing.F) {
	for _, text := range []string{"", "40000-40999", "1-1", "2-1", "65536", "-"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		low, high, err := (&params{PortRange: text}).ports()
		if err == nil && (low < 0 || low > high || high > 65535) {
			t.Errorf("%q is %d to %d", text, low, high)
		}
	})
}
