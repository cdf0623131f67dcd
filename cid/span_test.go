package cid

import "testing"

func TestUnbornHasLaterChildrenAndTheirsOnly(t *testing.T) {
	parent := Extended{Base: 7, Sub: 3 << 48}
	d := NewDeriver(parent)
	born, err := d.Next(2)
	if err != nil {
		t.Fatal(err)
	}
	span := d.Unborn()
	later, _ := d.Next(2)
	d.left = 1
	last, _ := d.Next(1)
	if d.Unborn() != (Span{}) || d.Unborn().Has(Extended{}) || d.Unborn().Has(parent) {
		t.Errorf("nothing is left, and %+v is unborn", d.Unborn())
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
				below.left = n
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
