package tcp

import "testing"

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
