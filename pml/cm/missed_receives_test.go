package cm

import (
	"testing"

	"github.com/ferrympi/ferry/pml"
)

// TestMissedReceives_PlanesTagsWildcards_Match covers planes and tags, with wildcards on either side.
func TestMissedReceives_PlanesTagsWildcards_Match(t *testing.T) {
	var p peer
	if p.isMissed(pml.PointToPoint, 1) || p.isMissed(pml.PointToPoint, pml.AnyTag) {
		t.Error("a new peer has missed receives")
	}
	p.recordMissed(pml.PointToPoint, 1)
	for _, c := range []struct {
		plane pml.Plane
		tag   int
		want  bool
	}{{pml.PointToPoint, 1, true}, {pml.PointToPoint, 2, false}, {pml.PointToPoint, pml.AnyTag, true}, {pml.Collective, 1, false}, {pml.Collective, pml.AnyTag, false}} {
		if p.isMissed(c.plane, c.tag) != c.want {
			t.Errorf("plane %d, tag %d: not %t", c.plane, c.tag, c.want)
		}
	}
	p.recordMissed(pml.Collective, pml.AnyTag)
	if !p.isMissed(pml.Collective, 7) {
		t.Error("a receive of any tag was told")
	}
	for tag := range 2 * maxMissed {
		p.recordMissed(pml.PointToPoint, tag)
	}
	if len(p.missedRecvs) > maxMissed+pml.Planes {
		t.Errorf("%d are kept", len(p.missedRecvs))
	}
	if !p.isMissed(pml.PointToPoint, 10*maxMissed) {
		t.Error("beyond the limit something is received")
	}
}
