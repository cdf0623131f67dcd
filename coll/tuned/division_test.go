package tuned

import (
	"math/rand/v2"
	"testing"

	"github.com/ferrympi/ferry/coll"
)

// Where the segments of one member end, those of the other have another length.
func TestSegments_BlocksDiffer_SomeSegmentDiffers(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	sizes := []int{0, 1, 63, 64, 65, 128, 1 << 10, 1<<10 + 1, 16 << 10, 32 << 10, 1 << 20, 2 << 20, 8 << 20, 8<<20 + 8, 16 << 20, 1 << 30}
	for range 200 {
		sizes = append(sizes, random.IntN(40<<20))
	}
	for _, elem := range []int{0, 1, 3, 8, 24} {
		for _, a := range sizes {
			for _, b := range sizes {
				if max(1, elem) > 1 {
					a, b = a/elem*elem, b/elem*elem
				}
				if a == b {
					continue
				}
				p, q := segments(a, elem, 16<<10), segments(b, elem, 16<<10)
				differ := false
				for i := 0; i < min(p.partCount, q.partCount) && !differ; i++ {
					_, n := p.slice(coll.Ref{}, i, i+1)
					_, m := q.slice(coll.Ref{}, i, i+1)
					differ = n != m
				}
				if !differ {
					t.Fatalf("%d and %d bytes of elements of %d: %+v, %+v", a, b, elem, p, q)
				}
			}
		}
	}
}

func TestDivision_PartsCoverTheBlock(t *testing.T) {
	for _, elem := range []int{0, 1, 3, 8, 24, 100} {
		for _, count := range []int{0, 1, 2, 63, 64, 1000, 99999} {
			size := count * max(1, elem)
			for _, p := range []division{divide(size, elem, 1), divide(size, elem, 3), divide(size, elem, 16), segments(size, elem, 64), segments(size, elem, 16<<10)} {
				end := 0
				for i := range p.partCount {
					at, n := p.slice(coll.Ref{}, i, i+1)
					if at.At != end || n < 0 || n%max(1, elem) != 0 || n > p.largestPart() {
						t.Fatalf("part %d of %+v, elements of %d, is %d bytes at %d", i, p, elem, n, at.At)
					}
					end += n
				}
				if end != size {
					t.Fatalf("%+v has %d bytes", p, end)
				}
			}
		}
	}
}
