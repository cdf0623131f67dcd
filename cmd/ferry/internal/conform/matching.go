package conform

import (
	"runtime"
	"sync"

	"github.com/ferrympi/ferry/mpi"
)

func matchingCases() []Case {
	return []Case{
		of("matching/messages of one sender don't overtake", "3.5", 1, (*env).nonOvertaking),
		of("matching/by tag, whatever came first", "3.5", 1, (*env).byTag),
		of("matching/receives in the order in which they were posted", "3.5, 3.2.4", 1, (*env).postedOrder),
		of("matching/any source is served by every sender", "3.5, 3.2.4", 2, (*env).fromAll),
		of("matching/probe leaves the message", "3.8.1", 1, (*env).probe),
		of("matching/a matched probe takes it", "3.8.2", 1, (*env).matchedProbe),
		of("matching/concurrent matched probes get each message once", "3.8.2", 1, (*env).concurrentProbes),
		of("matching/planes: collectives meet no messages", "7.1", 1, (*env).planes),
	}
}

// nonOvertaking sends large and small messages of one tag, blocking and nonblocking.
func (e *env) nonOvertaking() {
	sizes := []int{8, 100_000, 0, 9000, 1, 500_000, 64}
	const n = 70
	reqs := make([]mpi.Request, n)
	for i := range reqs {
		out := pattern(max(1, sizes[i%len(sizes)]), e.c.Rank(), i)
		start := e.c.Isend
		if i%3 == 0 {
			start = e.c.Issend
		}
		reqs[i] = need(start(out, e.rightRank, 4))(e)
	}
	for i := range n {
		tag := 4
		if i%2 == 0 {
			tag = mpi.AnyTag
		}
		e.recv(e.c, e.leftRank, tag, 4, pattern(max(1, sizes[i%len(sizes)]), e.leftRank, i))
	}
	e.Check(mpi.WaitAll(e.ctx, reqs, nil))
}

func (e *env) byTag() {
	for _, n := range []int{8, 50_000} {
		reqs := make([]mpi.Request, 20)
		for tag := range reqs {
			reqs[tag] = e.isend(e.c, pattern(n, e.c.Rank(), tag), e.rightRank, tag)
		}
		for i := range reqs { // neither in the order of the sends nor the other way round
			tag := (i*7 + 3) % len(reqs)
			e.recv(e.c, []int{e.leftRank, mpi.AnySource}[i%2], tag, tag, pattern(n, e.leftRank, tag))
		}
		e.Check(mpi.WaitAll(e.ctx, reqs, nil))
	}
}

// postedOrder checks that the first posted one of matching receives gets the message, with and without
// wildcards.
func (e *env) postedOrder() {
	for _, n := range []int{1, 70_000} {
		patterns := [][2]int{{e.leftRank, 1}, {mpi.AnySource, 1}, {e.leftRank, mpi.AnyTag}, {mpi.AnySource, mpi.AnyTag}, {e.leftRank, 1}, {mpi.AnySource, mpi.AnyTag}}
		reqs, bufs := make([]mpi.Request, len(patterns)), make([][]byte, len(patterns))
		for i, p := range patterns {
			bufs[i] = make([]byte, n)
			reqs[i] = e.irecv(bufs[i], p[0], p[1])
		}
		e.barrier()
		for i := range patterns {
			e.Check(e.c.Send(e.ctx, pattern(n, e.c.Rank(), i), e.rightRank, 1))
		}
		for i := range patterns {
			e.got(reqs[i], 1, bufs[i], pattern(n, e.leftRank, i))
		}
	}
}

func (e *env) fromAll() {
	c := e.c
	const each = 50
	if c.Rank() != 0 {
		for i := range each {
			e.Check(mpi.Send(e.ctx, c, []int64{int64(i)}, 0, i%3))
		}
		return
	}
	next := make([]int64, c.Size())
	in := make([]int64, 1)
	for range each * (c.Size() - 1) {
		st := need(mpi.Recv(e.ctx, c, in, mpi.AnySource, mpi.AnyTag))(e)
		e.must(in[0] == next[st.Source] && st.Tag == int(in[0])%3,
			"message %d with tag %d of rank %d, want message %d", in[0], st.Tag, st.Source, next[st.Source])
		next[st.Source]++
	}
}

func (e *env) probe() {
	c := e.c
	for i, n := range []int{0, 30, 100_000} {
		s := e.isend(c, pattern(n, c.Rank(), i), e.rightRank, i)
		for range 2 { // it stays
			e.status("probe", e.leftRank, i, n)(c.Probe(e.ctx, mpi.AnySource, i))
			st, ok, err := c.Iprobe(e.leftRank, mpi.AnyTag)
			e.status("iprobe", e.leftRank, i, n)(st, err)
			e.must(ok, "iprobe after probe: nothing")
		}
		e.recv(c, e.leftRank, i, i, pattern(n, e.leftRank, i))
		e.wait(s)
		st, ok, err := c.Iprobe(mpi.AnySource, i)
		e.none("iprobe after the receive")(st, err)
		e.must(!ok, "iprobe after the receive: a message")
	}
}

func (e *env) matchedProbe() {
	c := e.c
	for i, n := range []int{0, 30, 100_000} {
		var sends []mpi.Request
		for k := range 2 {
			sends = append(sends, e.isend(c, pattern(n, c.Rank(), k), e.rightRank, i))
		}
		first, st, err := c.Mprobe(e.ctx, e.leftRank, i)
		e.status("mprobe", e.leftRank, i, n)(st, err)
		// The message is claimed, so that the next receive gets the next one.
		e.recv(c, mpi.AnySource, i, i, pattern(n, e.leftRank, 1))
		in := make([]byte, n)
		r := need(first.Irecv(in))(e)
		e.got(r, i, in, pattern(n, e.leftRank, 0))
		_, again := first.Recv(e.ctx, in)
		e.Is("a second receive of it", again, mpi.ErrClosed)
		e.Check(mpi.WaitAll(e.ctx, sends, nil))
	}
	m, st, ok, err := c.Improbe(e.leftRank, 0)
	e.none("improbe of nothing")(st, err)
	e.must(!ok && m == nil, "improbe: a message that was not sent")
}

// concurrentProbes claims messages of different sizes in several goroutines.
func (e *env) concurrentProbes() {
	c := e.c
	const n, workers = 60, 3
	var sends []mpi.Request
	for i := range n {
		sends = append(sends, e.isend(c, pattern(i+1, c.Rank(), i), e.rightRank, 0))
	}
	var mu sync.Mutex
	seen := map[int]bool{}
	e.Each(workers, func(int) {
		last := 0
		for range n / workers {
			m, st, err := c.Mprobe(e.ctx, mpi.AnySource, 0)
			e.Check(err)
			in := make([]byte, st.Bytes)
			need(m.Recv(e.ctx, in))(e)
			e.Same("taken", in, pattern(st.Bytes, e.leftRank, st.Bytes-1))
			mu.Lock()
			again := seen[st.Bytes]
			seen[st.Bytes] = true
			mu.Unlock()
			e.must(!again, "the message of %d bytes was taken twice", st.Bytes)
			e.must(last < st.Bytes, "one taker got the message of %d bytes after that of %d", st.Bytes, last)
			last = st.Bytes
			runtime.Gosched()
		}
	})
	e.Check(mpi.WaitAll(e.ctx, sends, nil))
}

// planes checks that messages wait during collectives, and that wildcards do not match the traffic of
// collectives.
func (e *env) planes() {
	c := e.c
	in := make([]byte, 1)
	r := e.irecv(in, mpi.AnySource, mpi.AnyTag)
	for i := range 20 {
		all := e.allgather(c, int64(c.Rank()))
		e.must(all[c.Size()-1] == int64(c.Size()-1), "allgather: %v", all)
		d := need(c.Split(e.ctx, c.Rank()%2, i))(e)
		e.Check(d.Close())
		e.barrier()
	}
	st, done, err := r.Status()
	e.must(!done && err == nil, "a receive got a collective's message: %+v, %v", st, err)
	e.barrier() // all have looked
	e.Check(c.Send(e.ctx, pattern(1, c.Rank(), 0), e.rightRank, 8))
	e.got(r, 8, in, pattern(1, e.leftRank, 0))
}
