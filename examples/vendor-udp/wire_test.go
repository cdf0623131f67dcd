package udp

import (
	"testing"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// deaf is a protocol that takes everything.
type deaf struct{}

func (deaf) Accept(framework.Life) btl.Inbound { return deaf{} }
func (deaf) Frame([]byte) error                { return nil }
func (deaf) Limits(framework.Life, int, int)   {}
func (deaf) PathDown(framework.Life, error)    {}
func (deaf) PeerGone(framework.Life, error)    {}

// Strangers' datagrams do no harm, whatever they say: to a process that knows nobody, one
// that waits for an answer, and one that has sent.
func FuzzDatagram(f *testing.F) {
	a, b := pair(f)
	from := sockaddr(b.addrs[0])
	for kind := byte(open); kind <= gone; kind++ {
		for _, body := range [][]byte{nil, make([]byte, 8), a.env.Greet(a.env.Self)} {
			f.Add(kind, uint32(1), false, body)
		}
	}
	f.Fuzz(func(t *testing.T, kind byte, number uint32, known bool, body []byte) {
		e := connect(t, a, b)
		id := e.id
		if !known {
			id++
		}
		datagram := make([]byte, headerSize, headerSize+len(body))
		header(datagram, kind, number, id)
		for _, ready := range []bool{false, true} {
			if ready && !e.closed {
				e.opened(from)
				if frame := e.Reserve(9); frame != nil {
					e.Commit(9)
				}
			}
			a.datagram(append(datagram, body...), from)
			if e.next-e.first > 1 {
				t.Fatalf("%d of 1 frames are not confirmed", e.next-e.first)
			}
		}
		e.drop()
		clear(a.in)
		for a.Poll() > 0 {
		}
		for b.Poll() > 0 {
		}
		clear(b.in)
	})
}
