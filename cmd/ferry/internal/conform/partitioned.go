package conform

import (
	"sync"

	"github.com/ferrympi/ferry/mpi"
)

func partitionedCases() []Case {
	return []Case{
		of("partitioned/numbers of partitions may differ", "4.2", 1, (*env).partitionsDiffer),
		of("partitioned/goroutines mark partitions", "4.2", 1, (*env).partitionsOfGoroutines),
		of("partitioned/operations match in order", "4.2", 1, (*env).partitionedOrder),
		of("partitioned/partitions arrive one by one", "4.2.2", 1, (*env).partitionsArrive),
		of("partitioned/empty buffers, and no process", "4.2", 1, (*env).partitionedEmpty),
		of("partitioned/messages of other calls are apart", "4.2", 1, (*env).partitionedApart),
		of("partitioned/errors", "4.2", 1, (*env).partitionedErrors),
	}
}

// psend and precv initialize the two sides in the ring.
func (e *env) psend(buf []byte, partitions, tag int) *mpi.Persistent {
	return need(e.c.PsendInit(buf, partitions, e.rightRank, tag))(e)
}

func (e *env) precv(buf []byte, partitions, tag int) *mpi.Persistent {
	return need(e.c.PrecvInit(buf, partitions, e.leftRank, tag))(e)
}

// endPartitioned waits for a round and checks the contents.
func (e *env) endPartitioned(s, r *mpi.Persistent, tag int, in, want []byte) {
	need(s.Wait(e.ctx))(e)
	e.status("partitioned receive", e.leftRank, tag, len(want))(r.Wait(e.ctx))
	e.Same("partitioned receive", in, want)
}

// partitionsDiffer sends several rounds with equal and different numbers of partitions, of small and large ones.
func (e *env) partitionsDiffer() {
	for tag, x := range []struct{ bytes, out, in int }{
		{12, 4, 4}, {12, 4, 6}, {12, 1, 12}, {12, 12, 1}, {4000, 1000, 1000}, {4000, 1000, 8}, {60000, 3, 5}, {2 << 20, 8, 4}, {3 << 20, 3, 1024},
	} {
		out, in := make([]byte, x.bytes), make([]byte, x.bytes)
		s, r := e.psend(out, x.out, tag), e.precv(in, x.in, tag)
		for round := range 3 {
			clear(in)
			want := pattern(x.bytes, e.leftRank, round)
			e.Check(mpi.StartAll([]*mpi.Persistent{r, s}))
			size := x.bytes / x.out
			own := pattern(x.bytes, e.c.Rank(), round)
			switch round {
			case 0:
				copy(out, own)
				e.Check(s.PreadyRange(0, x.out-1))
			case 1:
				for i := x.out - 1; i >= 0; i-- {
					copy(out[i*size:(i+1)*size], own[i*size:])
					e.Check(s.Pready(i))
				}
			default:
				var even, odd []int
				for i := range x.out {
					copy(out[i*size:(i+1)*size], own[i*size:])
					if i%2 == 0 {
						even = append(even, i)
					} else {
						odd = append(odd, i)
					}
				}
				e.Check(s.PreadyList(even...), s.PreadyList(odd...))
			}
			e.endPartitioned(s, r, tag, in, want)
		}
		e.Check(s.Free(), r.Free())
	}
}

// partitionsOfGoroutines marks partitions by several goroutines, while others wait and poll.
func (e *env) partitionsOfGoroutines() {
	const goroutines, each, size = 8, 16, 1000
	out, in := make([]byte, goroutines*each*size), make([]byte, goroutines*each*size)
	s, r := e.psend(out, goroutines*each, 1), e.precv(in, goroutines, 1)
	for round := range 3 {
		own := pattern(len(out), e.c.Rank(), round)
		e.Check(mpi.StartAll([]*mpi.Persistent{s, r}))
		errs := make([]error, goroutines)
		var all sync.WaitGroup
		for g := range goroutines {
			all.Go(func() {
				for i := range each {
					p := i*goroutines + g
					copy(out[p*size:(p+1)*size], own[p*size:])
					if err := s.Pready(p); err != nil {
						errs[g] = err
						return
					}
				}
			})
		}
		e.endPartitioned(s, r, 1, in, pattern(len(in), e.leftRank, round))
		all.Wait()
		e.Check(errs...)
	}
	e.Check(s.Free(), r.Free())
}

// partitionedOrder starts operations with equal and different tags in different orders at the two sides.
func (e *env) partitionedOrder() {
	const n, many = 600, 6
	sends, recvs := make([]*mpi.Persistent, many), make([]*mpi.Persistent, many)
	outs, ins := make([][]byte, many), make([][]byte, many)
	for i := range many {
		outs[i], ins[i] = make([]byte, n), make([]byte, n)
	}
	for i := range many { // Tag 7 three times, and three others.
		sends[i] = e.psend(outs[i], 3, 7+i%2*i)
	}
	for _, i := range []int{5, 3, 1, 0, 2, 4} {
		recvs[i] = e.precv(ins[i], 2, 7+i%2*i)
	}
	for round := range 3 {
		for i := range many {
			copy(outs[i], pattern(n, e.c.Rank(), round*many+i))
			e.Check(recvs[(i+e.c.Rank()+round)%many].Start())
		}
		for i := many - 1; i >= 0; i-- {
			e.Check(sends[i].Start())
		}
		e.Is("start of an active operation", sends[0].Start(), mpi.ErrPending)
		for _, i := range []int{3, 0, 5, 1, 4, 2} {
			e.Check(sends[i].PreadyList(2, 0, 1))
		}
		for i := range many {
			e.endPartitioned(sends[i], recvs[i], 7+i%2*i, ins[i], pattern(n, e.leftRank, round*many+i))
		}
	}
	for i := range many {
		e.Check(sends[i].Free(), recvs[i].Free())
	}
	// Earlier operations count, though they were never started.
	a, b := e.psend(outs[0], 1, 7), e.precv(ins[0], 1, 7)
	e.Check(a.Free(), b.Free())
	a, b = e.psend(outs[1], 2, 7), e.precv(ins[1], 2, 7)
	e.Check(mpi.StartAll([]*mpi.Persistent{a, b}), a.PreadyRange(0, 1))
	e.endPartitioned(a, b, 7, ins[1], pattern(n, e.leftRank, 2*many+1))
	e.Check(a.Free(), b.Free())
}

// partitionsArrive receives a partition while another one of the same send is not ready.
func (e *env) partitionsArrive() {
	for tag, size := range []int{8, 100000} {
		out, in := pattern(2*size, e.c.Rank(), tag), make([]byte, 2*size)
		s, r := e.psend(out, 2, tag), e.precv(in, 2, tag)
		e.must(need(r.Parrived(0))(e), "a partition of an inactive operation has not arrived")
		e.Check(mpi.StartAll([]*mpi.Persistent{s, r}), s.Pready(1))
		for !need(r.Parrived(1))(e) {
			e.Check(e.ctx.Err())
		}
		e.Same("the second partition", in[size:], pattern(2*size, e.leftRank, tag)[size:])
		e.barrier()
		e.must(!need(r.Parrived(0))(e), "a partition has arrived that was not ready")
		_, isDone, err := r.Test()
		e.must(!isDone && err == nil, "the receive is complete before its last partition, or has failed: %v", err)
		e.barrier()
		e.Check(s.Pready(0))
		e.endPartitioned(s, r, tag, in, pattern(2*size, e.leftRank, tag))
		e.Check(s.Free(), r.Free())
	}
}

func (e *env) partitionedEmpty() {
	s, r := e.psend(nil, 3, 1), e.precv(nil, 2, 1)
	nowhere := need(e.c.PsendInit(make([]byte, 6), 2, mpi.ProcNull, 1))(e)
	from := need(e.c.PrecvInit(make([]byte, 6), 2, mpi.ProcNull, 1))(e)
	for range 2 {
		e.Check(mpi.StartAll([]*mpi.Persistent{s, r, nowhere, from}))
		e.Check(s.PreadyList(2, 0))
		e.barrier()
		e.must(!need(r.Parrived(0))(e), "an empty partition has arrived before all were ready")
		e.barrier()
		e.Check(s.Pready(1), nowhere.Pready(0))
		e.endPartitioned(s, r, 1, nil, nil)
		e.must(need(from.Parrived(1))(e), "a partition from no process has not arrived")
		e.null("to no process")(nowhere.Wait(e.ctx))
		e.null("from no process")(from.Wait(e.ctx))
	}
	e.Check(s.Free(), r.Free(), nowhere.Free(), from.Free())
}

// partitionedApart exchanges other messages with the same tag meanwhile.
func (e *env) partitionedApart() {
	const n = 5000
	out, in := pattern(n, e.c.Rank(), 1), make([]byte, n)
	s, r := e.psend(out, 5, 3), e.precv(in, 4, 3)
	wild := make([]byte, 10)
	q := e.irecv(wild, mpi.AnySource, mpi.AnyTag)
	e.Check(mpi.StartAll([]*mpi.Persistent{s, r}), s.PreadyRange(0, 4))
	e.endPartitioned(s, r, 3, in, pattern(n, e.leftRank, 1))
	e.barrier()
	e.Check(e.c.Send(e.ctx, pattern(10, e.c.Rank(), 2), e.rightRank, 3))
	e.got(q, 3, wild, pattern(10, e.leftRank, 2))
	e.Check(s.Free(), r.Free())
}

func (e *env) partitionedErrors() {
	buf := make([]byte, 12)
	init := func(what string, want error, partitions, rank, tag int) {
		_, err := e.c.PsendInit(buf, partitions, rank, tag)
		e.Is("send "+what, err, want)
		_, err = e.c.PrecvInit(buf, partitions, rank, tag)
		e.Is("receive "+what, err, want)
	}
	init("in 0 partitions", mpi.ErrPartition, 0, e.rightRank, 1)
	init("in 5 partitions of 12 bytes", mpi.ErrPartition, 5, e.rightRank, 1)
	init("with a rank out of range", mpi.ErrRank, 3, e.c.Size(), 1)
	init("with a tag out of range", mpi.ErrTag, 3, e.rightRank, e.c.TagMax()+1)
	_, err := e.c.PrecvInit(buf, 3, mpi.AnySource, 1)
	e.Is("receive from any source", err, mpi.ErrUnsupported)
	_, err = e.c.PrecvInit(buf, 3, e.leftRank, mpi.AnyTag)
	e.Is("receive with any tag", err, mpi.ErrUnsupported)
	_, err = mpi.PsendInit(e.c, []*int{}, 1, e.rightRank, 1)
	e.Is("send of pointers", err, mpi.ErrType)

	s, r := e.psend(buf, 4, 1), e.precv(make([]byte, 12), 4, 1)
	e.Is("ready before the start", s.Pready(0), mpi.ErrClosed)
	e.Is("ready of a receive", r.Pready(0), mpi.ErrUnsupported)
	_, err = s.Parrived(0)
	e.Is("arrived of a send", err, mpi.ErrUnsupported)
	e.Check(mpi.StartAll([]*mpi.Persistent{s, r}))
	e.Is("partition 4 of 4", s.Pready(4), mpi.ErrPartition)
	e.Is("partition -1", s.Pready(-1), mpi.ErrPartition)
	e.Is("a range that ends before it begins", s.PreadyRange(2, 1), mpi.ErrPartition)
	_, err = r.Parrived(4)
	e.Is("partition 4 of 4 at the receiver", err, mpi.ErrPartition)
	e.Check(s.Pready(1))
	e.Is("ready twice", s.Pready(1), mpi.ErrPartition)
	e.Is("ready twice in a range", s.PreadyRange(0, 2), mpi.ErrPartition)
	e.Is("ready twice in a list", s.PreadyList(3, 3), mpi.ErrPartition)
	e.Is("free of an active send", s.Free(), mpi.ErrPending)
	e.Is("free of an active receive", r.Free(), mpi.ErrPending)
	e.Is("cancel", r.Request().Cancel(), mpi.ErrUnsupported)
	e.barrier() // Every receive is active up to here.
	e.Check(s.PreadyList(3, 0, 2))
	need(s.Wait(e.ctx))(e)
	need(r.Wait(e.ctx))(e)
	e.Is("ready after the round", s.Pready(0), mpi.ErrClosed)
	e.Check(s.Free(), r.Free())
	e.Is("ready after Free", s.Pready(0), mpi.ErrClosed)
	_, err = r.Parrived(0)
	e.Is("arrived after Free", err, mpi.ErrClosed)
	e.Is("start after Free", s.Start(), mpi.ErrClosed)

	// Lengths that differ are an error of both sides, and the next round is another.
	s, r = e.psend(buf, 4, 1), e.precv(make([]byte, 15), 3, 1)
	for range 2 {
		e.Check(mpi.StartAll([]*mpi.Persistent{s, r}))
		_, err = s.Wait(e.ctx)
		e.Is("send to a receive of another length", err, mpi.ErrTruncate)
		_, err = r.Wait(e.ctx)
		e.Is("receive of a send of another length", err, mpi.ErrTruncate)
	}
	e.Check(s.Free(), r.Free())
}
