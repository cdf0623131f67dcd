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
		of("message/modes of nonblocking sends", "3.7.2", 1, (*env).nonblockingModes),
		of("message/a synchronous send waits for its receive", "3.4", 2, (*env).synchronous),
		of("message/a buffered send does not wait", "3.6", 1, (*env).bufferedSend),
		of("message/flush of the buffer", "3.6", 1, (*env).flushBuffer),
		of("message/exchanges of every size", "3.10", 1, (*env).exchanges),
		of("message/exchange with ProcNull", "3.11", 1, (*env).exchangeWithNone),
		of("message/exchange that is too long", "3.10", 1, (*env).exchangeTruncated),
		of("message/ProcNull", "3.11", 1, (*env).procNull),
		of("message/truncation", "3.2.5", 1, (*env).truncation),
		of("message/tags up to the highest", "9.1.2", 1, (*env).highestTag),
		of("message/count of elements", "3.2.5", 1, (*env).counts),
		of("message/all to all at once", "3.5", 1, (*env).allAtOnce),
	}
}

// everySize sends messages of all sizes around a ring by Sendrecv, also those that block a plain send.
func (e *env) everySize() {
	for i, n := range []int{0, 1, 2, 7, 8, 63, 64, 65, 500, 4095, 4096, 4097, 8167, 8168, 8169, 8192, 20_000, 65_536, 200_001, 5 << 20} {
		what, in, src := fmt.Sprintf("%d bytes", n), make([]byte, n), e.leftRank
		if i%2 == 1 {
			src = mpi.AnySource
		}
		e.status(what, e.leftRank, i, n)(e.c.Sendrecv(e.ctx, pattern(n, e.c.Rank(), i), e.rightRank, i, in, src, i))
		e.Same(what, in, pattern(n, e.leftRank, i))
	}
}

// modes checks that messages of all modes arrive. The receive of a ready send is posted before.
func (e *env) modes() {
	for mode, send := range []func(context.Context, []byte, int, int) error{e.c.Send, e.c.Ssend, e.c.Bsend, e.c.Rsend} {
		for _, n := range []int{0, 100, 100_000} {
			in := make([]byte, n)
			r := e.irecv(in, e.leftRank, mode)
			e.barrier() // every receive is posted
			e.Check(send(e.ctx, pattern(n, e.c.Rank(), mode), e.rightRank, mode))
			e.got(r, mode, in, pattern(n, e.leftRank, mode))
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
			// The message with tag 1 has arrived before that with tag 2, by which the sender
			// reports that the first one was not complete.
			need(c.Probe(e.ctx, 0, 1))(e)
			need(c.Recv(e.ctx, nil, 0, 2))(e)
			e.status("synchronous", 0, 1, n)(c.Recv(e.ctx, make([]byte, n), 0, 1))
		}
	}
}

// bufferedSend checks that the send returns before the receive, and that the
// buffer is the caller's at once.
func (e *env) bufferedSend() {
	sizes := []int{8, 100_000}
	for i, n := range sizes {
		out := pattern(n, e.c.Rank(), i)
		e.Check(e.c.Bsend(e.ctx, out, e.rightRank, i))
		clear(out)
	}
	for i, n := range sizes {
		e.recv(e.c, e.leftRank, i, i, pattern(n, e.leftRank, i))
	}
}

// nonblockingModes sends in each mode. A ready send finds its receive posted.
func (e *env) nonblockingModes() {
	for mode, start := range []func([]byte, int, int) (mpi.Request, error){e.c.Isend, e.c.Issend, e.c.Ibsend, e.c.Irsend} {
		for _, n := range []int{0, 100, 100_000} {
			in := make([]byte, n)
			r := e.irecv(in, e.leftRank, mode)
			e.barrier() // every receive is posted
			s := need(start(pattern(n, e.c.Rank(), mode), e.rightRank, mode))(e)
			e.got(r, mode, in, pattern(n, e.leftRank, mode))
			e.wait(s)
		}
	}
}

// flushBuffer checks that a flush completes when the messages have left.
func (e *env) flushBuffer() {
	const n = 100_000
	e.Check(e.c.FlushBuffer(e.ctx))
	out := pattern(n, e.c.Rank(), 0)
	s := need(e.c.Ibsend(out, e.rightRank, 0))(e)
	st, done, err := s.Test()
	e.none("buffered send")(st, err)
	e.must(done, "a buffered send is pending")
	clear(out)
	flush := need(e.c.IflushBuffer())(e)
	e.recv(e.c, e.leftRank, 0, 0, pattern(n, e.leftRank, 0))
	e.none("flush")(flush.Wait(e.ctx))
	e.Check(mpi.Bsend(e.ctx, e.c, []int32{1}, e.rightRank, 1), e.c.FlushBuffer(e.ctx), e.session.FlushBuffer(e.ctx))
	e.must(need(mpi.Recv(e.ctx, e.c, make([]int32, 1), e.leftRank, 1))(e).Bytes == 4, "length of a buffered message")
}

// exchanges sends around a ring, with one buffer for both messages and with two.
func (e *env) exchanges() {
	for i, n := range []int{0, 1, 8, 65, 4096, 4097, 20_000, 100_001, 2 << 20} {
		what, src := fmt.Sprintf("%d bytes", n), e.leftRank
		if i%2 == 1 {
			src = mpi.AnySource
		}
		out, want := pattern(n, e.c.Rank(), i), pattern(n, e.leftRank, i)
		in := make([]byte, n)
		r := need(e.c.Isendrecv(out, e.rightRank, i, in, src, i))(e)
		e.status(what, e.leftRank, i, n)(r.Wait(e.ctx))
		e.Same(what, in, want)
		buf := slices.Clone(out)
		e.status("one buffer, "+what, e.leftRank, i, n)(e.c.SendrecvReplace(e.ctx, buf, e.rightRank, i, src, i))
		e.Same("one buffer, "+what, buf, want)
		r = need(e.c.IsendrecvReplace(out, e.rightRank, i, src, i))(e)
		e.status("nonblocking with one buffer, "+what, e.leftRank, i, n)(r.Wait(e.ctx))
		e.Same("nonblocking with one buffer, "+what, out, want)
		e.barrier() // before the next receive from any source
	}
}

// exchangeWithNone is a line in place of a ring.
func (e *env) exchangeWithNone() {
	dst, src := e.rightRank, e.leftRank
	if e.c.Rank() == e.c.Size()-1 {
		dst = mpi.ProcNull
	}
	if e.c.Rank() == 0 {
		src = mpi.ProcNull
	}
	check := func(what string, in []byte, got func(mpi.Status, error), mine byte) {
		got(need(e.c.IsendrecvReplace(in, dst, 1, src, 1))(e).Wait(e.ctx))
		want := mine
		if src != mpi.ProcNull {
			want = byte(e.leftRank)
		}
		e.must(in[0] == want, "%s: %d, want %d", what, in[0], want)
	}
	mine := byte(e.c.Rank())
	if src == mpi.ProcNull {
		check("first of a line", []byte{mine}, e.null("first of a line"), mine)
	} else {
		check("line", []byte{mine}, e.status("line", src, 1, 1), mine)
	}
	r := need(e.c.Isendrecv([]byte{1}, mpi.ProcNull, 1, []byte{2}, mpi.ProcNull, 1))(e)
	e.null("both")(r.Wait(e.ctx))
	_, err := e.c.Isendrecv(nil, e.c.Size(), 1, nil, 0, 1)
	e.Is("wrong receiver", err, mpi.ErrRank)
	_, err = e.c.Isendrecv(nil, 0, 1, nil, 0, -5)
	e.Is("wrong tag", err, mpi.ErrTag)
}

// exchangeTruncated checks that a message that is too long fails the exchange, and that the other one arrives.
func (e *env) exchangeTruncated() {
	for i, n := range []int{10, 5000, 300_000} {
		in := make([]byte, n-1)
		r := need(e.c.Isendrecv(pattern(n, e.c.Rank(), i), e.rightRank, i, in, e.leftRank, i))(e)
		st, err := r.Wait(e.ctx)
		e.Is("exchange that is too long", err, mpi.ErrTruncate)
		e.status("truncated", e.leftRank, i, n)(st, nil)
		e.Same("the part that fits", in, pattern(n, e.leftRank, i)[:n-1])
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
	// A line instead of a ring.
	dst, src := e.rightRank, e.leftRank
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
			s := e.isend(e.c, pattern(n, e.c.Rank(), i), e.rightRank, i)
			mem := make([]byte, n+8)
			st, err := e.c.Recv(e.ctx, mem[:room], e.leftRank, i)
			e.Is("receive that is too short", err, mpi.ErrTruncate)
			e.status("truncated", e.leftRank, i, n)(st, nil)
			e.Same("what fits", mem[:room], pattern(n, e.leftRank, i)[:room])
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
		sends = append(sends, e.isend(e.c, pattern(4, e.c.Rank(), i), e.rightRank, tag))
	}
	for i, tag := range slices.Backward(tags) {
		e.recv(e.c, e.leftRank, tag, tag, pattern(4, e.leftRank, i))
	}
	e.Check(mpi.WaitAll(e.ctx, sends, nil))
}

func (e *env) counts() {
	in := make([]float64, 10)
	st, err := mpi.Sendrecv(e.ctx, e.c, []float64{1, 2, 3}, e.rightRank, 0, in, e.leftRank, 0)
	e.status("elements", e.leftRank, 0, 24)(st, err)
	n, whole := mpi.Count[float64](st)
	_, odd := mpi.Count[[5]byte](st)
	e.must(n == 3 && whole, "%d elements, whole: %t", n, whole)
	e.must(!odd, "24 bytes count as a whole number of 5-byte elements")
	e.must(in[2] == 3, "%v", in)
}

// allAtOnce sends large and small messages from every rank to every rank, itself included, without
// posted receives.
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
