package conform

import (
	"bytes"

	"github.com/ferrympi/ferry/mpi"
)

func bufferCases() []Case {
	return []Case{
		of("persistent/started again and again", "3.9", 1, (*env).persistent),
		of("persistent/inactive ones", "3.9", 1, (*env).inactive),
		of("memory/messages out of AllocMem's memory", "9.2", 1, (*env).allocated),
		of("layout/vector to bytes and back", "5.1.2", 1, (*env).vectors),
		of("layout/indexed to vector", "5.1.2", 1, (*env).indexed),
	}
}

func (e *env) persistent() {
	c := e.c
	for _, n := range []int{8, 100_000} {
		out, in := make([]byte, n), make([]byte, n)
		for _, start := range []func([]byte, int, int) (*mpi.Persistent, error){c.SendInit, c.SsendInit} {
			s := need(start(out, e.rightRank, 6))(e)
			r := need(c.RecvInit(in, e.leftRank, 6))(e)
			for i := range 20 {
				copy(out, pattern(n, c.Rank(), i)) // The data at the start is sent.
				e.Check(r.Start(), s.Start())
				e.Is("start of an active one", r.Start(), mpi.ErrPending)
				e.status("receive", e.leftRank, 6, n)(r.Wait(e.ctx))
				need(s.Wait(e.ctx))(e)
				e.Same("receive", in, pattern(n, e.leftRank, i))
			}
			e.Check(s.Free(), r.Free())
			e.Is("start of a freed one", s.Start(), mpi.ErrClosed)
		}
	}
}

func (e *env) inactive() {
	r := need(e.c.RecvInit(make([]byte, 1), e.leftRank, 1))(e)
	e.none("wait")(r.Wait(e.ctx))
	st, done, err := r.Test()
	e.none("test")(st, err)
	e.must(done, "test: pending")
	p := need(e.c.SendInit(nil, mpi.ProcNull, 1))(e)
	e.Check(p.Start())
	e.null("ProcNull")(p.Wait(e.ctx))
	e.Check(p.Free(), r.Free())
	e.Is("free again", r.Free(), mpi.ErrClosed)
}

func (e *env) allocated() {
	m := need(mpi.AllocMem(e.session, 3<<20))(e)
	out := mpi.View[byte](m)
	e.Same("new memory", out, make([]byte, 3<<20))
	for i, n := range []int{8, 40_000, 2 << 20} {
		from := out[i : i+n] // a part of it
		copy(from, pattern(n, e.c.Rank(), i))
		in := make([]byte, n)
		e.status("message", e.leftRank, i, n)(e.c.Sendrecv(e.ctx, from, e.rightRank, i, in, e.leftRank, i))
		e.Same("message", in, pattern(n, e.leftRank, i))
	}
	e.Check(m.Close())
	e.Is("close again", m.Close(), mpi.ErrClosed)
}

func (e *env) vectors() {
	c := e.c
	for _, blocks := range []int{1, 10, 3000} {
		l := mpi.Vector(blocks, 24, 40)
		s := need(c.IsendLayout(pattern(l.Extent(), c.Rank(), blocks), l, e.rightRank, 1))(e)
		flat := make([]byte, l.Size())
		e.status("vector to bytes", e.leftRank, 1, l.Size())(c.Recv(e.ctx, flat, e.leftRank, 1))
		e.wait(s)
		b := e.isend(c, flat, e.rightRank, 2)
		in := bytes.Repeat([]byte{0xEE}, l.Extent())
		e.status("bytes to vector", e.leftRank, 2, l.Size())(c.RecvLayout(e.ctx, in, l, e.leftRank, 2))
		e.wait(b)
		// It went round by two ranks.
		want := bytes.Repeat([]byte{0xEE}, l.Extent())
		theirs := pattern(l.Extent(), (e.leftRank+c.Size()-1)%c.Size(), blocks)
		for i := range want {
			if i%40 < 24 {
				want[i] = theirs[i]
			}
		}
		e.Same("vector", in, want)
	}
}

func (e *env) indexed() {
	from := mpi.Indexed(mpi.Block{Offset: 50, Bytes: 10}, mpi.Block{Offset: 0, Bytes: 20}, mpi.Block{Offset: 30, Bytes: 6})
	to := mpi.Vector(4, 9, 11)
	s := need(e.c.IsendLayout(pattern(from.Extent(), e.c.Rank(), 0), from, e.rightRank, 1))(e)
	in := make([]byte, to.Extent())
	e.status("indexed", e.leftRank, 1, 36)(e.c.RecvLayout(e.ctx, in, to, e.leftRank, 1))
	e.wait(s)
	theirs := pattern(from.Extent(), e.leftRank, 0)
	want := make([]byte, to.Extent())
	for i, b := range bytes.Join([][]byte{theirs[50:60], theirs[:20], theirs[30:36]}, nil) {
		want[i/9*11+i%9] = b
	}
	e.Same("indexed", in, want)
}
