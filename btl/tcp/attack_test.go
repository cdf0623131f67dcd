package tcp

import (
	"testing"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

func TestAttack_DeclaredWindow_BoundsFramesOutOfTurn(t *testing.T) {
	j := newJob(t, 2, func(_ int, p *params) { p.Window = 4 << 20 })
	a, b, _ := j.met()
	p := b.peers.byIncarnation[a.incarnation]
	p.peerLimits.windowBytes = 1 << 30
	const size = 16 << 20
	for k := range 10 {
		p.bufferFrame(header{bodySize: size, kind: kindFrame, number: p.path.nextExpected + 2 + uint64(k)}, nil)
		if p.reorderBuffer.bytesBuffered > maxDeclaredWindow+size {
			t.Fatalf("%d bytes are kept out of turn", p.reorderBuffer.bytesBuffered)
		}
	}
	if p.path.damagedLinks == 0 {
		t.Error("no damage is counted")
	}
}

// The first frame waits for its retransmission, and the others arrive by another link.
func TestWindow_LargerThanThePeers_FramesBehindALostOneAreStored(t *testing.T) {
	for _, windows := range [][2]framework.Size{{80 << 20, 4 << 20}, {96 << 20, 72 << 20}, {4 << 20, 80 << 20}} {
		j := newJob(t, 2, func(rank int, p *params) { p.Window = windows[rank] })
		a, b, e := j.met()
		from, to := a.peers.byIncarnation[b.incarnation], b.peers.byIncarnation[a.incarnation]
		j.until("the first acknowledgment", from.path.isIdle)
		for e.Reserve(a.config.frameLimit, btl.RingStart) != nil {
			e.Commit(a.config.frameLimit)
		}
		for n := to.path.nextExpected + 1; n < from.path.nextNumber; n++ {
			to.bufferFrame(header{bodySize: from.path.frameAt(n).size() - headerSize, kind: kindFrame, number: n}, nil)
		}
		if used, least := from.path.bytesUsed, int(min(windows[0], 64<<20))-2*a.config.frameLimit; used < least {
			t.Errorf("windows %v: %d bytes under way, want at least %d", windows, used, least)
		}
		if to.path.damagedLinks != 0 {
			t.Errorf("windows %v: damage is counted with %d bytes under way", windows, from.path.bytesUsed)
		}
	}
}
