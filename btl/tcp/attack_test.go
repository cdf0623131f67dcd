package tcp

import (
	"testing"

	"github.com/ferrympi/ferry/framework"
)

func TestAttack_DeclaredWindow_BoundsFramesOutOfTurn(t *testing.T) {
	j := newJob(t, 2, func(_ int, p *params) { p.Window = 4 << 20 })
	a, b, _ := j.met()
	p := b.pairs[a.life]
	p.limits.window = 1 << 30
	const size = 16 << 20
	for k := range 10 {
		p.keep(header{size: size, kind: kindFrame, number: p.path.due + 2 + uint64(k)}, nil)
		if p.stashed > mostDeclared+size {
			t.Fatalf("%d bytes are kept out of turn", p.stashed)
		}
	}
	if p.path.damages == 0 {
		t.Error("no damage is counted")
	}
}

// TestWindow_LargerThanThePeers_FramesBehindALostOneAreStored: the first frame waits for its retransmission, and the
// others arrive by another link.
func TestWindow_LargerThanThePeers_FramesBehindALostOneAreStored(t *testing.T) {
	for _, windows := range [][2]framework.Size{{80 << 20, 4 << 20}, {96 << 20, 72 << 20}, {4 << 20, 80 << 20}} {
		j := newJob(t, 2, func(rank int, p *params) { p.Window = windows[rank] })
		a, b, e := j.met()
		from, to := a.pairs[b.life], b.pairs[a.life]
		j.until("the first acknowledgment", from.path.idle)
		for e.Reserve(a.frame) != nil {
			e.Commit(a.frame)
		}
		for n := to.path.due + 1; n < from.path.end; n++ {
			to.keep(header{size: from.path.at(n).size() - headerSize, kind: kindFrame, number: n}, nil)
		}
		if used, least := from.path.used, int(min(windows[0], 64<<20))-2*a.frame; used < least {
			t.Errorf("windows %v: %d bytes under way, want at least %d", windows, used, least)
		}
		if to.path.damages != 0 {
			t.Errorf("windows %v: damage is counted with %d bytes under way", windows, from.path.used)
		}
	}
}
