package pmltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/pml"
)

func bufferCases() claims {
	return claims{
		kittest.Of("EverySizeNearALimitArrivesWhole", 2, allSizes),
		kittest.Of("EmptyMessagesMatchToo", 2, empty),
		kittest.Of("BothWaysAtOnceEnd", 2, bothWays),
		kittest.Of("TruncationWritesNothingBeyond", 2, truncation),
		kittest.Of("SynchronousSendWaitsForItsReceive", 2, synchronous),
		kittest.Of("LayoutsArePackedAndUnpacked", 2, layouts),
	}
}

// limitMargin is more than any header.
const limitMargin = 50

func allSizes(ctx context.Context, f *fixture) error {
	sizes := []int{5 << 20}
	for n := range 130 {
		sizes = append(sizes, n)
	}
	for _, limit := range f.limits() {
		for n := max(0, limit-limitMargin); n <= limit+limitMargin; n++ {
			sizes = append(sizes, n)
		}
	}
	return Each(f.comms, func(rank int, c pml.Comm) error {
		for i, n := range sizes {
			b := data(i, n)
			var err error
			if rank == i%2 {
				err = send(ctx, c, 1-rank, 1, b)
			} else {
				err = want(ctx, c, 1-rank, 1, b, 1-rank, 1)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func empty(ctx context.Context, f *fixture) error {
	for i, mode := range []pml.Mode{pml.Standard, pml.Synchronous, pml.Ready} {
		r, err := irecv(f.comms[1], 0, i, nil)
		if err != nil {
			return err
		}
		if err := f.comms[0].Send(ctx, pml.Buffer{}, 1, i, p2p, mode); err != nil {
			return err
		}
		st, err := r.wait(ctx)
		if err == nil {
			err = compare(st, nil, nil, 0, i)
		}
		if err != nil {
			return fmt.Errorf("mode %d: %w", mode, err)
		}
	}
	return nil
}

func bothWays(ctx context.Context, f *fixture) error {
	return Each(f.comms, func(rank int, c pml.Comm) error {
		for i := range 30 {
			n := []int{100, 9000, 1 << 20}[i%3]
			var reqs []pending
			for k := range 3 {
				r, err := isend(c, 1-rank, k, data(i+k+rank, n), pml.Standard)
				if err != nil {
					return err
				}
				reqs = append(reqs, r)
			}
			for k := range 3 {
				if err := want(ctx, c, 1-rank, k, data(i+k+1-rank, n), 1-rank, k); err != nil {
					return err
				}
			}
			for _, r := range reqs {
				if _, err := r.wait(ctx); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func truncation(ctx context.Context, f *fixture) error {
	for i, n := range []int{1, 100, 5000, 100000} {
		for _, room := range []int{0, n / 2, n - 1} {
			for _, late := range []bool{true, false} {
				if err := f.truncated(ctx, i, n, room, late); err != nil {
					return fmt.Errorf("%d bytes into %d (unexpected: %v): %w", n, room, late, err)
				}
			}
		}
	}
	return nil
}

func (f *fixture) truncated(ctx context.Context, seed, n, room int, late bool) error {
	whole := bytes.Repeat([]byte{0xee}, n+64)
	b := data(seed, n)
	var s, r pending
	var err error
	post := func() { r, err = irecv(f.comms[1], 0, 4, whole[32:32+room]) }
	if !late {
		if post(); err != nil {
			return err
		}
	}
	if s, err = isend(f.comms[0], 1, 4, b, pml.Standard); err != nil {
		return err
	}
	if late {
		if err := until(ctx, "arrival", func() bool { return f.unexpected(1) == 1 }); err != nil {
			return err
		}
		if post(); err != nil {
			return err
		}
	}
	st, err := r.wait(ctx)
	if !errors.Is(err, framework.ErrTruncate) || !errors.Is(st.Err, framework.ErrTruncate) {
		return fmt.Errorf("receive: %+v %v", st, err)
	}
	if st.Bytes != n || st.Source != 0 || st.Tag != 4 {
		return fmt.Errorf("status of a truncated message: %+v", st)
	}
	if _, err := s.wait(ctx); err != nil {
		return fmt.Errorf("the sender of a truncated message: %w", err)
	}
	if !bytes.Equal(whole[32:32+room], b[:room]) {
		return errors.New("what fits did not arrive")
	}
	for i, x := range whole {
		if (i < 32 || i >= 32+room) && x != 0xee {
			return fmt.Errorf("byte %d outside the buffer was written", i-32)
		}
	}
	// The next message is not harmed.
	if s, err = isend(f.comms[0], 1, 4, b, pml.Standard); err != nil {
		return err
	}
	if err := want(ctx, f.comms[1], 0, 4, b, 0, 4); err != nil {
		return err
	}
	_, err = s.wait(ctx)
	return err
}

func synchronous(ctx context.Context, f *fixture) error {
	for i, n := range []int{0, 10, 100000} {
		s, err := isend(f.comms[0], 1, i, data(i, n), pml.Synchronous)
		if err != nil {
			return err
		}
		// Other traffic in both directions passes it, and it stays pending.
		for range 20 {
			err := Each(f.comms, func(rank int, c pml.Comm) error { return meet(ctx, c, 1-rank) })
			if err != nil {
				return err
			}
			if _, done, err := s.r.Test(s.gen); done || err != nil {
				return fmt.Errorf("%d bytes: complete (%v) before a receive was posted: %v", n, done, err)
			}
		}
		if err := want(ctx, f.comms[1], 0, i, data(i, n), 0, i); err != nil {
			return err
		}
		if _, err := s.wait(ctx); err != nil {
			return err
		}
	}
	return nil
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

func layouts(ctx context.Context, f *fixture) error {
	for _, l := range []strided{{5, 3, 7}, {1000, 8, 24}, {20000, 13, 17}, {300, 1000, 1001}} {
		out := data(l.count, int(l.Extent()))
		packed := make([]byte, l.Size())
		l.Pack(packed, out, 0)
		for _, how := range []string{"both", "sender", "receiver"} {
			s, r := pml.Buffer{Bytes: out, Form: &pml.Form{Layout: l}}, pml.Buffer{Bytes: bytes.Repeat([]byte{0xee}, len(out)), Form: &pml.Form{Layout: l}}
			if how == "sender" {
				r = buffer(make([]byte, len(packed)))
			}
			if how == "receiver" {
				s = buffer(packed)
			}
			q, err := started(f.comms[0].Isend(s, 1, 6, p2p, pml.Standard))
			if err != nil {
				return err
			}
			st, err := f.comms[1].Recv(ctx, r, 0, 6, p2p)
			if err != nil {
				return err
			}
			got := r.Bytes
			if r.Layout() != nil {
				got = make([]byte, len(packed))
				l.Pack(got, r.Bytes, 0)
				clean := bytes.Repeat([]byte{0xee}, len(out))
				l.Unpack(clean, packed, 0)
				if !bytes.Equal(clean, r.Bytes) {
					return fmt.Errorf("%+v at %s: bytes between the blocks were written", l, how)
				}
			}
			if err := compare(st, got, packed, 0, 6); err != nil {
				return fmt.Errorf("%+v at %s: %w", l, how, err)
			}
			if _, err := q.wait(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}
