package conform

import (
	"slices"

	"github.com/ferrympi/ferry/mpi"
)

func requestCases() []Case {
	return []Case{
		of("request/null requests", "3.7.3", 1, (*env).nullRequests),
		of("request/wait and test use it up", "3.7.3", 1, (*env).usedUp),
		of("request/status without using it up", "3.7.6", 1, (*env).getStatus),
		of("request/wait for all when one fails", "3.7.5", 1, (*env).waitAll),
		of("request/wait for any", "3.7.5", 1, (*env).waitAny),
		of("request/wait for some", "3.7.5", 1, (*env).waitSome),
		of("request/test for all is all or nothing", "3.7.5", 1, (*env).testAll),
		of("request/cancel of a receive", "3.8.4", 1, (*env).cancel),
		of("request/cancel after the match does nothing", "3.8.4", 1, (*env).cancelTooLate),
		of("request/free of an active request", "3.7.3", 1, (*env).free),
		of("request/many at once", "3.7", 1, (*env).manyAtOnce),
		of("request/persistent operations", "3.9", 1, (*env).persistentOperations),
	}
}

func (e *env) nullRequests() {
	var zero mpi.Request
	e.none("wait")(zero.Wait(e.ctx))
	st, done, err := zero.Test()
	e.none("test")(st, err)
	e.must(done, "test: pending")
	st, done, err = zero.Status()
	e.none("status")(st, err)
	e.must(done, "status: pending")
	e.Is("cancel", zero.Cancel(), mpi.ErrClosed)
	e.Is("free", zero.Free(), mpi.ErrClosed)
	for _, list := range [][]mpi.Request{nil, {zero, zero}} {
		all := make([]mpi.Status, len(list))
		e.Check(mpi.WaitAll(e.ctx, list, all))
		for _, st := range all {
			e.none("wait for all")(st, nil)
		}
		ok, err := mpi.TestAll(list, nil)
		e.must(ok && err == nil, "test for all: %t, %v", ok, err)
		i, st, err := mpi.WaitAny(e.ctx, list)
		e.none("wait for any")(st, err)
		e.must(i == mpi.Undefined, "wait for any: %d", i)
		i, st, ok, err = mpi.TestAny(list)
		e.none("test for any")(st, err)
		e.must(ok && i == mpi.Undefined, "test for any: %d, %t", i, ok)
		n, err := mpi.WaitSome(e.ctx, list, make([]int, len(list)), nil)
		e.must(n == mpi.Undefined && err == nil, "wait for some: %d, %v", n, err)
	}
}

func (e *env) usedUp() {
	for i := range 3 { // Recycled requests too.
		in := make([]byte, 1)
		r := e.irecv(in, e.leftRank, i)
		_, done, err := r.Test()
		e.must(!done && err == nil, "test before the send: %t, %v", done, err)
		e.barrier()
		e.Check(e.c.Send(e.ctx, pattern(1, e.c.Rank(), i), e.rightRank, i))
		other := r // a copy is the same operation
		e.got(r, i, in, pattern(1, e.leftRank, i))
		_, again := other.Wait(e.ctx)
		_, _, test := r.Test()
		e.Is("wait again", again, mpi.ErrClosed)
		e.Is("test again", test, mpi.ErrClosed)
		e.Is("cancel of it", r.Cancel(), mpi.ErrClosed)
		e.Is("free of it", r.Free(), mpi.ErrClosed)
	}
}

func (e *env) getStatus() {
	in := make([]byte, 4)
	r := e.irecv(in, e.leftRank, 1)
	e.Check(e.c.Send(e.ctx, pattern(2, e.c.Rank(), 0), e.rightRank, 1))
	e.Until("completion", func() bool {
		_, done, err := r.Status()
		e.Check(err)
		return done
	})
	for range 2 {
		st, done, err := r.Status()
		e.status("status", e.leftRank, 1, 2)(st, err)
		e.must(done, "it is pending again")
	}
	e.status("wait", e.leftRank, 1, 2)(r.Wait(e.ctx))
}

// waitAll checks that each operation has its own outcome, and that the error is that of the failed one.
func (e *env) waitAll() {
	reqs, bufs := make([]mpi.Request, 4), make([][]byte, 4)
	for i := range reqs {
		bufs[i] = make([]byte, 10*i) // the second is too short
		src := e.leftRank
		if i == 2 {
			src = mpi.ProcNull
		}
		reqs[i] = e.irecv(bufs[i], src, i)
	}
	for i, n := range []int{0, 11, -1, 30} {
		if n >= 0 {
			e.Check(e.c.Send(e.ctx, pattern(n, e.c.Rank(), i), e.rightRank, i))
		}
	}
	st := make([]mpi.Status, 4)
	e.Is("wait for all", mpi.WaitAll(e.ctx, reqs, st), mpi.ErrTruncate)
	e.Is("the one that fails", st[1].Err, mpi.ErrTruncate)
	e.status("too short", e.leftRank, 1, 11)(st[1], nil)
	e.status("first", e.leftRank, 0, 0)(st[0], st[0].Err)
	e.null("null")(st[2], st[2].Err)
	e.status("last", e.leftRank, 3, 30)(st[3], st[3].Err)
	e.Same("last", bufs[3], pattern(30, e.leftRank, 3))
	for i, r := range reqs {
		e.must(r == mpi.Request{}, "request %d is not null afterwards", i)
	}
}

// several posts n receives, and sends to those of the right, the last one first, when
// before has looked at them.
func (e *env) several(n int, before func(reqs []mpi.Request)) ([]mpi.Request, [][]byte) {
	reqs, bufs := make([]mpi.Request, n+1), make([][]byte, n) // one more is null
	for i := range bufs {
		bufs[i] = make([]byte, 1)
		reqs[i] = e.irecv(bufs[i], e.leftRank, i)
	}
	before(reqs)
	e.barrier()
	for i := n - 1; i >= 0; i-- {
		e.Check(e.c.Send(e.ctx, []byte{byte(i)}, e.rightRank, i))
	}
	return reqs, bufs
}

func (e *env) waitAny() {
	const n = 20
	reqs, bufs := e.several(n, func(reqs []mpi.Request) {
		i, _, done, err := mpi.TestAny(reqs[:n])
		e.must(!done && err == nil, "test for any, before anything was sent: %d, %t, %v", i, done, err)
	})
	seen := map[int]bool{}
	for range n {
		i, st, err := mpi.WaitAny(e.ctx, reqs)
		e.status("any", e.leftRank, i, 1)(st, err)
		e.must(!seen[i] && int(bufs[i][0]) == i, "request %d again", i)
		seen[i] = true
	}
	i, st, err := mpi.WaitAny(e.ctx, reqs)
	e.none("after the last")(st, err)
	e.must(i == mpi.Undefined, "index %d after the last", i)
}

func (e *env) waitSome() {
	const n = 20
	done, st := make([]int, n+1), make([]mpi.Status, n+1)
	reqs, bufs := e.several(n, func(reqs []mpi.Request) {
		k, err := mpi.TestSome(reqs, done, st)
		e.must(k == 0 && err == nil, "test for some before anything was sent: %d, %v", k, err)
	})
	seen := map[int]bool{}
	for len(seen) < n {
		k, err := mpi.WaitSome(e.ctx, reqs, done, st)
		e.must(k >= 1 && err == nil, "wait for some: %d, %v", k, err)
		for j, i := range done[:k] {
			e.status("some", e.leftRank, i, 1)(st[j], st[j].Err)
			e.must(!seen[i] && int(bufs[i][0]) == i, "request %d again", i)
			seen[i] = true
		}
	}
	k, err := mpi.WaitSome(e.ctx, reqs, done, st)
	e.must(k == mpi.Undefined && err == nil, "%d after the last, %v", k, err)
}

func (e *env) testAll() {
	const n = 5
	reqs, _ := e.several(n, func(reqs []mpi.Request) {
		before := slices.Clone(reqs)
		done, err := mpi.TestAll(reqs, nil)
		e.must(!done && err == nil, "before anything was sent: %t, %v", done, err)
		e.must(slices.Equal(reqs, before), "requests have changed although not all are complete")
	})
	st := make([]mpi.Status, n+1)
	e.Until("completion", func() bool {
		done := need(mpi.TestAll(reqs, st))(e)
		return done
	})
	for i := range n {
		e.status("all", e.leftRank, i, 1)(st[i], st[i].Err)
	}
	e.none("null")(st[n], st[n].Err)
}

func (e *env) cancel() {
	for _, src := range []int{e.leftRank, mpi.AnySource} {
		buf := []byte{7}
		r := e.irecv(buf, src, 3)
		e.Check(r.Cancel())
		st, err := r.Wait(e.ctx)
		e.must(err == nil && st.Canceled && buf[0] == 7, "%+v, %v; contents %v", st, err, buf)
	}
	e.barrier()
	// Messages go to receives that are alive.
	e.Check(e.c.Send(e.ctx, pattern(1, e.c.Rank(), 0), e.rightRank, 3))
	e.recv(e.c, mpi.AnySource, 3, 3, pattern(1, e.leftRank, 0))
}

func (e *env) cancelTooLate() {
	for i, n := range []int{10, 100_000} {
		in := make([]byte, n)
		r := e.irecv(in, e.leftRank, i)
		s := need(e.c.Issend(pattern(n, e.c.Rank(), i), e.rightRank, i))(e)
		e.wait(s)   // the right neighbor's receive has matched
		e.barrier() // and so has this rank's
		e.Check(r.Cancel())
		e.got(r, i, in, pattern(n, e.leftRank, i))
	}
}

// free checks that the operation of a freed request continues.
func (e *env) free() {
	for i, n := range []int{10, 100_000} {
		s := e.isend(e.c, pattern(n, e.c.Rank(), i), e.rightRank, i)
		e.Check(s.Free())
		e.Is("free again", s.Free(), mpi.ErrClosed)
		e.recv(e.c, e.leftRank, i, i, pattern(n, e.leftRank, i))
	}
}

func (e *env) manyAtOnce() {
	const n = 500
	reqs := make([]mpi.Request, 2*n)
	in := make([]int64, n)
	for i := range n {
		var recv, send error
		reqs[2*i], recv = mpi.Irecv(e.c, in[i:i+1], e.leftRank, i%7)
		reqs[2*i+1], send = mpi.Isend(e.c, []int64{int64(i)}, e.rightRank, i%7)
		e.Check(recv, send)
	}
	e.Check(mpi.WaitAll(e.ctx, reqs, nil))
	for i, x := range in {
		e.must(x == int64(i), "receive %d got message %d", i, x)
	}
}

// persistentOperations starts sends of all modes and their receives again and again.
func (e *env) persistentOperations() {
	const n = 1000
	inits := []func([]byte, int, int) (*mpi.Persistent, error){e.c.SendInit, e.c.SsendInit, e.c.BsendInit, e.c.RsendInit}
	var sends, recvs []*mpi.Persistent
	outs, ins := make([][]byte, len(inits)), make([][]byte, len(inits))
	for mode, init := range inits {
		outs[mode], ins[mode] = make([]byte, n), make([]byte, n)
		sends = append(sends, need(init(outs[mode], e.rightRank, mode))(e))
		recvs = append(recvs, need(e.c.RecvInit(ins[mode], e.leftRank, mode))(e))
	}
	for round := range 3 {
		for mode := range inits {
			copy(outs[mode], pattern(n, e.c.Rank(), 10*round+mode))
			clear(ins[mode])
		}
		e.Check(mpi.StartAll(recvs))
		e.barrier() // every receive is posted
		e.Check(mpi.StartAll(sends))
		e.Is("start of an active operation", mpi.StartAll(recvs[:1]), mpi.ErrPending)
		for mode := range inits {
			e.status("persistent receive", e.leftRank, mode, n)(recvs[mode].Wait(e.ctx))
			e.Same("persistent receive", ins[mode], pattern(n, e.leftRank, 10*round+mode))
			need(sends[mode].Wait(e.ctx))(e)
		}
	}
	for _, p := range append(sends, recvs...) {
		e.none("inactive")(p.Wait(e.ctx))
		e.Check(p.Free())
	}
	e.Is("start after Free", mpi.StartAll(sends), mpi.ErrClosed)
}
