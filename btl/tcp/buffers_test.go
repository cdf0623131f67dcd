package tcp

import (
	"reflect"
	"testing"

	"github.com/ferrympi/ferry/btl"
)

// idle returns the memory of an idle peer in bytes.
func (p *peerConn) idle() (n int) {
	n = int(reflect.TypeFor[peerConn]().Size()) + len(p.path.frameRing)*int(reflect.TypeFor[frame]().Size()) +
		cap(p.path.queuesBySlot)*int(reflect.TypeFor[linkQueue]().Size())
	for _, c := range p.sendBuffer.chunks {
		n += len(c.bytes)
	}
	for _, l := range p.linksBySlot {
		if l != nil {
			n += int(reflect.TypeFor[link]().Size()) + cap(l.readBuf) + cap(l.frameBody)
		}
	}
	return n
}

// A process may have thousands of peers with little traffic.
func TestIdlePeer_AfterSmallFramesAndBurst_KeepsLittleMemory(t *testing.T) {
	j := newJob(t, 2, nil)
	a, b, e := j.met()
	ends := []btl.Endpoint{e, b.connect(a)}
	confirmed := func() bool { return ends[0].Idle() && ends[1].Idle() }
	most := func(what string, bytes int) {
		t.Helper()
		j.until(what, confirmed)
		for i, p := range []*peerConn{a.peers.byIncarnation[b.incarnation], b.peers.byIncarnation[a.incarnation]} {
			if n := p.idle(); n > bytes {
				t.Errorf("%s: rank %d keeps %d bytes, more than %d", what, i, n, bytes)
			}
		}
	}
	for range 100 {
		j.send(ends[0], make([]byte, 32))
		j.send(ends[1], make([]byte, 32))
		j.until("both", confirmed)
	}
	most("small frames one after another", 4<<10)
	for range 500 { // the other end does not look meanwhile
		if b := ends[0].Reserve(1<<10, btl.RingStart); b != nil {
			ends[0].Commit(1 << 10)
		}
	}
	most("a burst", 8<<10)
}
