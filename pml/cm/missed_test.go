package cm

import (
	"testing"

	"github.com/ferrympi/ferry/pml"
)

// TestWhoWouldGetTheMessageOfOneThatWasTold: by plane and tag, wildcards on either side.
func TestWhoWouldGetTheMessageOfOneThatWasTold(t *testing.T) {
	var p peer
	if p.misses(pml.PointToPoint, 1) || p.misses(pml.PointToPoint, pml.AnyTag) {
		t.Error("nobody was told")
	}
	p.miss(pml.PointToPoint, 1)
	for _, c := range []struct {
		plane pml.Plane
		tag   int
		want  bool
	}{{pml.PointToPoint, 1, true}, {pml.PointToPoint, 2, false}, {pml.PointToPoint, pml.AnyTag, true}, {pml.Collective, 1, false}, {pml.Collective, pml.AnyTag, false}} {
		if p.misses(c.plane, c.tag) != c.want {
			t.Errorf("plane %d, tag %d: not %t", c.plane, c.tag, c.want)
		}
	}
	p.miss(pml.Collective, pml.AnyTag)
	if !p.misses(pml.Collective, 7) {
		t.Error("a receive of any tag was told")
	}
	for tag := range 2 * mostMissed {
		p.miss(pml.PointToPoint, tag)
	}
	if len(p.missed) > mostMissed+pml.Planes {
		t.Errorf("%d are kept", len(p.missed))
	}
	if !p.misses(pml.PointToPoint, 10*mostMissed) {
		t.Error("beyond the limit something is received")
	}
}
