package pmltest

import (
	"bytes"
	"errors"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/pml"
)

func bufferCases() claims {
	return claims{
		kittest.New("EverySizeNearALimitArrivesWhole", 2, (*fixture).allSizes),
		kittest.New("BothWaysAtOnceEnd", 2, (*fixture).bothWays),
		kittest.New("TruncationWritesNothingBeyond", 2, (*fixture).truncation),
		kittest.New("SynchronousSendWaitsForItsReceive", 2, (*fixture).synchronous),
		kittest.New("LayoutsArePackedAndUnpacked", 2, (*fixture).layouts),
		kittest.New("LongestMessagePassesAndTagsToo", 2, (*fixture).longest),
	}
}

// limitMargin is more than any header.
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
	f.each(f.comms, func(rank int, c pml.Comm) {
		for i, n := range sizes {
			if rank == i%2 {
				f.send(c, 1-rank, 1, data(i, n))
			} else {
				f.want(c, 1-rank, 1, data(i, n), 1-rank, 1)
			}
		}
	})
}

func (f *fixture) bothWays() {
	f.each(f.comms, func(rank int, c pml.Comm) {
		for i := range 30 {
			n := []int{100, 9000, 1 << 20}[i%3]
			var sends []pending
			for k := range 3 {
				sends = append(sends, f.isend(c, 1-rank, k, data(i+k+rank, n), pml.Standard))
			}
			for k := range 3 {
				f.want(c, 1-rank, k, data(i+k+1-rank, n), 1-rank, k)
			}
			f.wait(sends...)
		}
	})
}

// guard is what a buffer holds where nothing may be written.
func guard(n int) []byte { return bytes.Repeat([]byte{0xee}, n) }

func (f *fixture) truncation() {
	for i, n := range []int{1, 100, 5000, 100000} {
		for _, room := range []int{0, n / 2, n - 1} {
			for _, late := range []bool{true, false} {
				f.truncated(data(i, n), room, late)
			}
		}
	}
}

// mostLongest is what a test has memory for.
const mostLongest = 64 << 20

func (f *fixture) longest() {
	caps := f.caps()
	b := data(1, int(min(caps.MaxMessage, mostLongest)))
	s := f.isend(f.comms[0], 1, caps.TagMax, b, pml.Standard)
	f.want(f.comms[1], 0, pml.AnyTag, b, 0, caps.TagMax)
	f.wait(s)
	if caps.MaxMessage > mostLongest {
		return
	}
	// A longer one may pass all the same, to some.
	b = append(b, 1)
	if r, err := f.comms[0].Isend(buffer(b), 1, 1, p2p, pml.Standard); err != nil {
		f.Is("a message that is too long", err, framework.ErrUnsupported)
	} else {
		s := pending{r, r.Generation()}
		f.want(f.comms[1], 0, 1, b, 0, 1)
		f.wait(s)
	}
}

// truncated sends b into a receive with less room, which is posted before or late.
func (f *fixture) truncated(b []byte, room int, late bool) {
	whole := guard(len(b) + 64)
	into := whole[32 : 32+room]
	var s, r pending
	if late {
		s = f.isend(f.comms[0], 1, 4, b, pml.Standard)
		f.arrived(f.comms[1], 0, 4)
		r = f.irecv(f.comms[1], 0, 4, into)
	} else {
		r = f.irecv(f.comms[1], 0, 4, into)
		s = f.isend(f.comms[0], 1, 4, b, pml.Standard)
	}
	st, err := r.wait(f.Context())
	if !errors.Is(err, framework.ErrTruncate) || !errors.Is(st.Err, framework.ErrTruncate) {
		f.Fatalf("%d bytes into %d (unexpected: %v): %+v %v", len(b), room, late, st, err)
	}
	if st.Bytes != len(b) || st.Source != 0 || st.Tag != 4 {
		f.Fatalf("status of a truncated message of %d bytes: %+v", len(b), st)
	}
	f.wait(s)
	f.Same("what fits", into, b[:room])
	f.Same("what is before the buffer", whole[:32], guard(32))
	f.Same("what is behind the buffer", whole[32+room:], guard(len(whole)-32-room))
	// The next message is not harmed.
	s = f.isend(f.comms[0], 1, 4, b, pml.Standard)
	f.want(f.comms[1], 0, 4, b, 0, 4)
	f.wait(s)
}

func (f *fixture) synchronous() {
	for i, n := range []int{0, 10, 100000} {
		s := f.isend(f.comms[0], 1, i, data(i, n), pml.Synchronous)
		// Other traffic in both directions passes it, and it stays pending.
		for range 20 {
			f.met(f.comms)
			if _, done, err := s.r.Test(s.gen); done || err != nil {
				f.Fatalf("%d bytes: complete (%v) before a receive was posted: %v", n, done, err)
			}
		}
		f.want(f.comms[1], 0, i, data(i, n), 0, i)
		f.wait(s)
	}
}

// strided is a Layout of count blocks of block bytes, stride apart.
type strided struct{ count, block, stride int }

func (s strided) Size() int64   { return int64(s.count * s.block) }
func (s strided) Extent() int64 { return int64((s.count-1)*s.stride + s.block) }

func (s strided) Pack(dst, buf []byte, offset int64) {
	s.each(len(dst), offset, func(at, n, k int) { copy(dst[k:k+n], buf[at:at+n]) })
}

func (s strided) Unpack(buf, src []byte, offset int64) {
	s.each(len(src), offset, func(at, n, k int) { copy(buf[at:at+n], src[k:k+n]) })
}

// each walks n bytes of the message from offset: f gets the place in the
// buffer, the length, and the place in the piece.
func (s strided) each(n int, offset int64, f func(at, n, k int)) {
	for k := 0; k < n; {
		pos := int(offset) + k
		in := pos % s.block
		step := min(s.block-in, n-k)
		f(pos/s.block*s.stride+in, step, k)
		k += step
	}
}

func (f *fixture) layouts() {
	for _, l := range []strided{{5, 3, 7}, {1000, 8, 24}, {20000, 13, 17}, {300, 1000, 1001}} {
		out := data(l.count, int(l.Extent()))
		packed := make([]byte, l.Size())
		l.Pack(packed, out, 0)
		unpacked := guard(len(out)) // what is between the blocks stays
		l.Unpack(unpacked, packed, 0)
		for _, how := range []string{"both", "sender", "receiver"} {
			s, r := pml.Buffer{Bytes: out, Form: &pml.Form{Layout: l}}, pml.Buffer{Bytes: guard(len(out)), Form: &pml.Form{Layout: l}}
			want := unpacked
			if how == "sender" {
				r, want = buffer(make([]byte, len(packed))), packed
			}
			if how == "receiver" {
				s = buffer(packed)
			}
			q, err := started(f.comms[0].Isend(s, 1, 6, p2p, pml.Standard))
			f.Check(err)
			st, err := f.comms[1].Recv(f.Context(), r, 0, 6, p2p)
			f.compare(st, err, packed, packed, 0, 6)
			f.Same("layout at "+how, r.Bytes, want)
			f.wait(q)
		}
	}
}
