package tcp

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/btl"
)

// BenchmarkPingPong sends a frame of 8 bytes and an answer, in one thread. The difference to
// BenchmarkSockets is the cost of this package.
func BenchmarkPingPong(b *testing.B) {
	var ends [2]btl.ShortSender
	var from [2]btl.Peeker
	j := newJobOf(b, 2, nil)
	x, y := j.procs[0], j.procs[1]
	ends[0], ends[1] = x.connect(y).(btl.ShortSender), y.connect(x).(btl.ShortSender)
	j.send(ends[0].(btl.Endpoint), []byte("a"))
	j.send(ends[1].(btl.Endpoint), []byte("b"))
	j.until("both frames", func() bool { return len(x.got) == 1 && len(y.got) == 1 })
	from[0], from[1] = x.PeerSource(y.incarnation).(btl.Peeker), y.PeerSource(x.incarnation).(btl.Peeker)
	payload := make([]byte, 8)
	b.ReportAllocs()
	for k := 0; b.Loop(); k++ {
		if k%64 == 0 { // as a protocol does
			x.Poll()
			y.Poll()
		}
		for i := range ends {
			if !ends[i].SendShort(btl.ShortHeader{}, payload) {
				b.Fatal("no room")
			}
			for from[1-i].Peek(1) == nil {
			}
			from[1-i].Drop()
		}
	}
}

// BenchmarkSockets is the same by system calls alone.
func BenchmarkSockets(b *testing.B) {
	j := newJobOf(b, 2, nil)
	x, y := j.procs[0], j.procs[1]
	j.send(x.connect(y), []byte("a"))
	j.until("a frame", func() bool { return len(y.got) == 1 })
	fds := [2]int{x.peers.byIncarnation[y.incarnation].linksBySlot[0].fd, y.peers.byIncarnation[x.incarnation].linksBySlot[0].fd}
	buf := make([]byte, 56)
	for b.Loop() {
		for i := range fds {
			unix.Write(fds[i], buf)
			for {
				if n, _ := unix.Read(fds[1-i], buf); n > 0 {
					break
				}
			}
		}
	}
}
