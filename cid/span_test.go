package cid

import "testing"

func TestUnassignedIDs_AnyDeriver_HasLaterChildrenOnly(t *testing.T) {
	parent := Extended{Base: 7, Sub: 3 << 48}
	d := NewDeriver(parent)
	born, err := d.Next(2)
	if err != nil {
		t.Fatal(err)
	}
	span := d.UnassignedIDs()
	later, _ := d.Next(2)
	d.remainingIDs = 1
	last, _ := d.Next(1)
	if d.UnassignedIDs() != (Span{}) || d.UnassignedIDs().Has(Extended{}) || d.UnassignedIDs().Has(parent) {
		t.Errorf("nothing is left, and %+v is unborn", d.UnassignedIDs())
	}
	in, out := append(later, last...), append(born, parent, Extended{Base: 7}, Extended{Base: 8, Sub: later[0].Sub}, Extended{Base: 7, Sub: 4 << 48})
	for _, of := range []struct {
		ids []Extended
		has bool
	}{{in, true}, {out, false}} {
		for _, id := range of.ids {
			if span.Has(id) != of.has {
				t.Errorf("%v: %v", id, span.Has(id))
			}
			if id == parent || id.Sub == 0 {
				continue
			}
			below := NewDeriver(id)
			for _, n := range []uint32{MaxChildren, 1} {
				below.remainingIDs = n
				for _, child := range must(below.Next(1)) {
					if id.Sub != 4<<48 && span.Has(child) != of.has {
						t.Errorf("%v, a child of %v: %v", child, id, span.Has(child))
					}
				}
			}
		}
	}
}

func must(ids []Extended, _ error) []Extended { return ids }

func TestDescendants_AnyLevel_HasCommunicatorAndDescendantsOnly(t *testing.T) {
	for _, id := range []Extended{{7, 0}, {7, 3 << 48}, {7, 3<<48 | 1<<32}, {7, 3<<48 | 1<<32 | 2<<16}, {7, 3<<48 | 1<<32 | 2<<16 | 9}} {
		span, below := Descendants(id), NewDeriver(id)
		last := below
		last.remainingIDs = min(1, last.remainingIDs)
		for _, child := range append(must(below.Next(min(1, below.Remaining()))), must(last.Next(last.Remaining()))...) {
			if !span.Has(child) || !Descendants(child).Has(child) || Descendants(child).Has(id) {
				t.Errorf("%v, a child of %v", child, id)
			}
		}
		if !span.Has(id) || span.Has(Extended{7, 4 << 48}) && id.Sub != 0 || span.Has(Extended{8, id.Sub}) {
			t.Errorf("%v: %+v", id, span)
		}
	}
}
