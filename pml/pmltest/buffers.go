package pmltest

import (
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/pml"
)

func bufferCases() claims {
	return claims{
		kittest.New("EverySizeNearALimitArrivesWhole", 2, (*fixture).allSizes),
		kittest.New("LongestMessagePassesAndTagsToo", 2, (*fixture).longest),
	}
}

// limitMargin is larger than any header, in bytes.
const limitMargin = 50

func (f *fixture) allSizes() {
	sizes := []int{5 << 20}
	for n := range 130 {
		sizes = append(sizes, n)
	}
	for _, limit := range f.caps().Steps {
		for n := max(0, limit-limitMargin); n <= limit+limitMargin; n++ {
			sizes = append(sizes, n)
		}
	}
	f.each(f.commsByRank, func(rank int, c pml.Comm) {
		for i, n := range sizes {
			if rank == i%2 {
				f.send(c, 1-rank, 1, data(i, n))
			} else {
				f.want(c, 1-rank, 1, data(i, n), 1-rank, 1)
			}
		}
	})
}

// mostLongest bounds the memory of a test, in bytes.
const mostLongest = 64 << 20

func (f *fixture) longest() {
	caps := f.caps()
	b := data(1, int(min(caps.MaxMessage, mostLongest)))
	s := f.isend(f.commsByRank[0], 1, caps.TagMax, b, pml.Standard)
	f.want(f.commsByRank[1], 0, pml.AnyTag, b, 0, caps.TagMax)
	f.wait(s)
	if caps.MaxMessage > mostLongest {
		return
	}
	// A longer message may be accepted for some peers.
	b = append(b, 1)
	if s, err := isend(f.commsByRank[0], 1, 1, b, pml.Standard); err != nil {
		f.Is("a message that is too long", err, framework.ErrUnsupported)
	} else {
		f.want(f.commsByRank[1], 0, 1, b, 0, 1)
		f.wait(s)
	}
}
