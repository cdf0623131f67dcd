package conform

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/mpi"
)

func messageCases() []Case {
	return []Case{
		of("message/every size arrives whole", "3.2, 3.11", 1, (*env).everySize),
		of("message/modes of sends", "3.4", 1, (*env).modes),
		of("message/a synchronous send waits for its receive", "3.4", 2, (*env).synchronous),
		of("message/a buffered send does not wait", "3.6", 1, (*env).bufferedSend),
		of("message/ProcNull", "3.10", 1, (*env).procNull),
		of("message/truncation", "3.2.5", 1, (*env).truncation),
		of("message/tags up to the highest", "9.1.2", 1, (*env).highestTag),
		of("message/count of elements", "3.2.5", 1, (*env).counts),
		of("message/all to all at once", "3.5", 1, (*env).allAtOnce),
	}
}

// everySize sends round a ring by Sendrecv, also what a plain send would wait with.
func (e *env) everySize() {
	for i, n := range []int{0, 1, 2, 7, 8, 63, 64, 65, 500, 4095, 4096, 4097, 8167, 8168, 8169, 8192, 20_000, 65_536, 200_001, 5 << 20} {
		what, in, src := fmt.Sprintf("%d bytes", n), make([]byte, n), e.left
		if i%2 == 1 {
			src = mpi.AnySource
		}
		e.status(what, e.left, i, n)(e.c.Sendrecv(e.ctx, pattern(n, e.c.Rank(), i), e.right, i, in, src, i))
		e.Same(what, in, pattern(n, e.left, i))
	}
}

// modes: all of them bring the message; a ready send finds its receive posted.
func (e *env) modes() {
	for mode, send := range []func(context.Context, []byte, int, int) error{e.c.Send, e.c.Ssend, e.c.Bsend, e.c.Rsend} {
		for _, n := range []int{0, 100, 100_000} {
			in := make([]byte, n)
			r := e.irecv(in, e.left, mode)
			e.barrier() // every receive is posted
			e.Check(send(e.ctx, pattern(n, e.c.Rank(), mode), e.right, mode))
			e.got(r, mode, in, pattern(n, e.left, mode))
		}
	}
}

func (e *env) synchronous() {
	c := e.c
	for _, n := range []int{0, 8, 100_000} {
		switch c.Rank() {
		case 0:
			r := need(c.Issend(make([]byte, n), 1, 1))(e)
			for range 100 {
				if _, done, err := r.Status(); done || err != nil {
					e.Fatalf("a synchronous send of %d bytes is complete before its receive, %v", n, err)
				}
			}
			e.Check(c.Send(e.ctx, nil, 1, 2))
			e.wait(r)
		case 1:
			// The order of these is what tells: the message with tag 1 is here, and its
			// sender says with tag 2 that it was not complete.
			need(c.Probe(e.ctx, 0, 1))(e)
			need(c.Recv(e.ctx, nil, 0, 2))(e)
			e.status("synchronous", 0, 1, n)(c.Recv(e.ctx, make([]byte, n), 0, 1))
		}
	}
}

// bufferedSend: it returns although the receive comes only afterwards, and the
// buffer is the caller's at once.
func (e *env) bufferedSend() {
	sizes := []int{8, 100_000}
	for i, n := range sizes {
		out := pattern(n, e.c.Rank(), i)
		e.Check(e.c.Bsend(e.ctx, out, e.right, i))
		clear(out)
	}
	for i, n := range sizes {
		e.recv(e.c, e.left, i, i, pattern(n, e.left, i))
	}
}

func (e *env) procNull() {
	c, ctx, buf := e.c, e.ctx, []byte{1, 2, 3}
	e.Check(c.Send(ctx, buf, mpi.ProcNull, 0), c.Ssend(ctx, buf, mpi.ProcNull, 0),
		c.Bsend(ctx, buf, mpi.ProcNull, 0), c.Rsend(ctx, buf, mpi.ProcNull, 0))
	e.null("receive")(c.Recv(ctx, buf, mpi.ProcNull, mpi.AnyTag))
	e.must(buf[0] == 1, "the buffer was written")
	e.null("probe")(c.Probe(ctx, mpi.ProcNull, 5))
	st, ok, err := c.Iprobe(mpi.ProcNull, 5)
	e.null("iprobe")(st, err)
	e.must(ok, "iprobe: nothing")
	m, st, err := c.Mprobe(ctx, mpi.ProcNull, 5)
	e.null("mprobe")(st, err)
	e.null("receive of the message")(m.Recv(ctx, buf))
	issend := need(c.Issend(buf, mpi.ProcNull, 0))(e)
	for _, r := range []mpi.Request{e.isend(c, buf, mpi.ProcNull, 0), issend, e.irecv(buf, mpi.ProcNull, 0)} {
		st, done, err := r.Test()
		e.null("request")(st, err)
		e.must(done, "a request with ProcNull is pending")
	}
	e.null("sendrecv")(c.Sendrecv(ctx, buf, mpi.ProcNull, 0, buf, mpi.ProcNull, 0))
	if c.Size() == 1 {
		return
	}
	// One half of it: a line in place of a ring.
	dst, src := e.right, e.left
	if c.Rank() == c.Size()-1 {
		dst = mpi.ProcNull
	}
	if c.Rank() == 0 {
		src = mpi.ProcNull
	}
	st, err = c.Sendrecv(ctx, []byte{9}, dst, 7, buf, src, 7)
	if src == mpi.ProcNull {
		e.null("first of a line")(st, err)
	} else {
		e.status("line", src, 7, 1)(st, err)
	}
}

func (e *env) truncation() {
	for i, n := range []int{10, 5000, 300_000} {
		for _, room := range []int{0, 1, n - 1} {
			s := e.isend(e.c, pattern(n, e.c.Rank(), i), e.right, i)
			mem := make([]byte, n+8)
			st, err := e.c.Recv(e.ctx, mem[:room], e.left, i)
			e.Is("receive that is too short", err, mpi.ErrTruncate)
			e.status("truncated", e.left, i, n)(st, nil)
			e.Same("what fits", mem[:room], pattern(n, e.left, i)[:room])
			e.must(bytes.Count(mem[room:], []byte{0}) == len(mem)-room, "%d bytes into %d: what follows them was written", n, room)
			e.wait(s)
		}
	}
}

func (e *env) highestTag() {
	highest := e.c.TagMax()
	e.must(highest >= 32767, "TagMax is %d; the standard says at least 32767", highest)
	tags := slices.Compact([]int{0, 32767, highest})
	var sends []mpi.Request
	for i, tag := range tags {
		sends = append(sends, e.isend(e.c, pattern(4, e.c.Rank(), i), e.right, tag))
	}
	for i, tag := range slices.Backward(tags) {
		e.recv(e.c, e.left, tag, tag, pattern(4, e.left, i))
	}
	e.Check(mpi.WaitAll(e.ctx, sends, nil))
}

func (e *env) counts() {
	in := make([]float64, 10)
	st, err := mpi.Sendrecv(e.ctx, e.c, []float64{1, 2, 3}, e.right, 0, in, e.left, 0)
	e.status("elements", e.left, 0, 24)(st, err)
	n, whole := mpi.Count[float64](st)
	_, odd := mpi.Count[[5]byte](st)
	e.must(n == 3 && whole, "%d elements, whole: %t", n, whole)
	e.must(!odd, "24 bytes count as a whole number of 5-byte elements")
	e.must(in[2] == 3, "%v", in)
}

// allAtOnce: every rank sends to every rank, itself included, large and small, with
// nothing posted beforehand.
func (e *env) allAtOnce() {
	c := e.c
	var reqs []mpi.Request
	for to := range c.Size() {
		for i, n := range []int{10, 50_000, 1 << 20} {
			reqs = append(reqs, e.isend(c, pattern(n, c.Rank(), i), to, i))
		}
	}
	in := make([]byte, 1<<20)
	for range reqs {
		st := need(c.Recv(e.ctx, in, mpi.AnySource, mpi.AnyTag))(e)
		e.Same("message", in[:st.Bytes], pattern(st.Bytes, st.Source, st.Tag))
	}
	e.Check(mpi.WaitAll(e.ctx, reqs, nil))
}
