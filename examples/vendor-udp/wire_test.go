package udp

import (
	"testing"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// discardProtocol accepts every path and frame.
type discardProtocol struct{}

func (discardProtocol) Accept(framework.Incarnation) btl.Inbound  { return discardProtocol{} }
func (discardProtocol) Frame([]byte) error                        { return nil }
func (discardProtocol) Limits(framework.Incarnation, int, int)    {}
func (discardProtocol) PathDown(framework.Incarnation, error)     {}
func (discardProtocol) LinkChanged(framework.Incarnation, string) {}
func (discardProtocol) Card(framework.Incarnation) (framework.Peer, bool) {
	return framework.Peer{}, false
}
func (discardProtocol) Place([]byte, int) []byte        { return nil }
func (discardProtocol) Placed([]byte, int) error        { return nil }
func (discardProtocol) PeerChanged(framework.PeerEvent) {}

// Datagrams of unknown senders never panic, whether the path is unknown, opening or open.
func FuzzDatagram(f *testing.F) {
	a, b := pair(f)
	from := toSockaddr(b.addrs[0])
	for kind := byte(kindOpen); kind <= kindLeft; kind++ {
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
		putHeader(datagram, kind, number, id)
		for _, ready := range []bool{false, true} {
			if ready && !e.closed {
				e.handleOpened(from)
				if frame := e.Reserve(9, btl.RingStart); frame != nil {
					e.Commit(9)
				}
			}
			a.handleDatagram(append(datagram, body...), from)
			if e.nextSeq-e.firstUnacked > 1 {
				t.Fatalf("%d frames in flight after sending 1", e.nextSeq-e.firstUnacked)
			}
		}
		e.remove()
		clear(a.recvPaths)
		for a.Poll() > 0 {
		}
		for b.Poll() > 0 {
		}
		clear(b.recvPaths)
	})
}
