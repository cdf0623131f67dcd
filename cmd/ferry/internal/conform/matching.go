package conform

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/ferrympi/ferry/mpi"
)

func matchingCases() []Case {
	return []Case{
		{"matching/messages of one sender don't overtake", "3.5", 1, nonOvertaking},
		{"matching/by tag, whatever came first", "3.5", 1, byTag},
		{"matching/receives in the order in which they were posted", "3.5", 1, postedOrder},
		{"matching/any source and any tag", "3.2.4", 1, wildcards},
		{"matching/any source is served by every sender", "3.5", 2, fromAll},
		{"matching/a message that nobody wants stays", "3.5", 1, unwanted},
		{"matching/probe leaves the message", "3.8.1", 1, probe},
		{"matching/a matched probe takes it", "3.8.2", 1, matchedProbe},
		{"matching/concurrent matched probes get each message once", "3.8.2", 1, concurrentProbes},
		{"matching/planes: collectives meet no messages", "7.1", 1, planes},
	}
}

// nonOvertaking: large and small, blocking and not, of one tag.
func nonOvertaking(ctx context.Context, e Env) error {
	c := e.Comm
	sizes := []int{8, 100_000, 0, 9000, 1, 500_000, 64}
	const n = 70
	reqs := make([]mpi.Request, n)
	for i := range reqs {
		out := pattern(max(1, sizes[i%len(sizes)]), c.Rank(), i)
		var err error
		if i%3 == 0 {
			reqs[i], err = c.Issend(out, e.right(), 4)
		} else {
			reqs[i], err = c.Isend(out, e.right(), 4)
		}
		if err != nil {
			return err
		}
	}
	in := make([]byte, 500_000)
	for i := range n {
		want := pattern(max(1, sizes[i%len(sizes)]), e.left(), i)
		tag := 4
		if i%2 == 0 {
			tag = mpi.AnyTag
		}
		st, err := c.Recv(ctx, in, e.left(), tag)
		if err := errors.Join(status("message", st, err, e.left(), 4, len(want)), same("message", in[:min(len(in), st.Bytes)], want)); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	return mpi.WaitAll(ctx, reqs, nil)
}

func byTag(ctx context.Context, e Env) error {
	c := e.Comm
	for _, n := range []int{8, 50_000} {
		reqs := make([]mpi.Request, 20)
		for tag := range reqs {
			var err error
			if reqs[tag], err = c.Isend(pattern(n, c.Rank(), tag), e.right(), tag); err != nil {
				return err
			}
		}
		for i := range reqs {
			tag := len(reqs) - 1 - i
			in := make([]byte, n)
			st, err := c.Recv(ctx, in, e.left(), tag)
			if err := errors.Join(status("by tag", st, err, e.left(), tag, n), same("by tag", in, pattern(n, e.left(), tag))); err != nil {
				return err
			}
		}
		if err := mpi.WaitAll(ctx, reqs, nil); err != nil {
			return err
		}
	}
	return nil
}

// postedOrder: of receives that all match, the first one posted is first served,
// wildcards or not.
func postedOrder(ctx context.Context, e Env) error {
	c := e.Comm
	patterns := [][2]int{{e.left(), 1}, {mpi.AnySource, 1}, {e.left(), mpi.AnyTag}, {mpi.AnySource, mpi.AnyTag}, {e.left(), 1}, {mpi.AnySource, mpi.AnyTag}}
	reqs, bufs := make([]mpi.Request, len(patterns)), make([][1]byte, len(patterns))
	for i, p := range patterns {
		var err error
		if reqs[i], err = c.Irecv(bufs[i][:], p[0], p[1]); err != nil {
			return err
		}
	}
	if err := mpi.Barrier(ctx, c); err != nil {
		return err
	}
	for i := range patterns {
		if err := c.Send(ctx, []byte{byte(i + 1)}, e.right(), 1); err != nil {
			return err
		}
	}
	st := make([]mpi.Status, len(reqs))
	if err := mpi.WaitAll(ctx, reqs, st); err != nil {
		return err
	}
	for i := range patterns {
		if err := errors.Join(status("receive", st[i], nil, e.left(), 1, 1), must(int(bufs[i][0]) == i+1, "it got message %d", bufs[i][0])); err != nil {
			return fmt.Errorf("receive %d: %w", i+1, err)
		}
	}
	return nil
}

func wildcards(ctx context.Context, e Env) error {
	c := e.Comm
	for i, p := range [][2]int{{mpi.AnySource, 9}, {e.left(), mpi.AnyTag}, {mpi.AnySource, mpi.AnyTag}} {
		for _, n := range []int{5, 70_000} {
			s, err := c.Isend(pattern(n, c.Rank(), i), e.right(), 9)
			if err != nil {
				return err
			}
			in := make([]byte, n)
			st, err := c.Recv(ctx, in, p[0], p[1])
			_, sendErr := s.Wait(ctx)
			if err := errors.Join(status("wildcard", st, err, e.left(), 9, n), same("wildcard", in, pattern(n, e.left(), i)), sendErr); err != nil {
				return err
			}
		}
	}
	return nil
}

func fromAll(ctx context.Context, e Env) error {
	c := e.Comm
	const each = 50
	if c.Rank() != 0 {
		for i := range each {
			if err := mpi.Send(ctx, c, []int64{int64(i)}, 0, i%3); err != nil {
				return err
			}
		}
		return nil
	}
	next := make([]int64, c.Size())
	in := make([]int64, 1)
	for range each * (c.Size() - 1) {
		st, err := mpi.Recv(ctx, c, in, mpi.AnySource, mpi.AnyTag)
		if err != nil {
			return err
		}
		if in[0] != next[st.Source] || st.Tag != int(in[0])%3 {
			return fmt.Errorf("message %d with tag %d of rank %d, want message %d", in[0], st.Tag, st.Source, next[st.Source])
		}
		next[st.Source]++
	}
	return nil
}

func unwanted(ctx context.Context, e Env) error {
	c := e.Comm
	for _, tag := range []int{1, 2} {
		if err := c.Bsend(ctx, pattern(10, c.Rank(), tag), e.right(), tag); err != nil {
			return err
		}
	}
	in := make([]byte, 10)
	for _, tag := range []int{2, 1} {
		st, err := c.Recv(ctx, in, e.left(), tag)
		if err := errors.Join(status("kept", st, err, e.left(), tag, 10), same("kept", in, pattern(10, e.left(), tag))); err != nil {
			return err
		}
	}
	return nil
}

func probe(ctx context.Context, e Env) error {
	c := e.Comm
	for i, n := range []int{0, 30, 100_000} {
		s, err := c.Isend(pattern(n, c.Rank(), i), e.right(), i)
		if err != nil {
			return err
		}
		for range 2 { // it stays
			st, err := c.Probe(ctx, mpi.AnySource, i)
			if err := status("probe", st, err, e.left(), i, n); err != nil {
				return err
			}
			st, ok, err := c.Iprobe(e.left(), mpi.AnyTag)
			if err := errors.Join(status("iprobe", st, err, e.left(), i, n), must(ok, "iprobe after probe: nothing")); err != nil {
				return err
			}
		}
		in := make([]byte, n)
		st, err := c.Recv(ctx, in, e.left(), i)
		_, sendErr := s.Wait(ctx)
		if err := errors.Join(status("receive", st, err, e.left(), i, n), same("receive", in, pattern(n, e.left(), i)), sendErr); err != nil {
			return err
		}
		if st, ok, err := c.Iprobe(mpi.AnySource, i); ok || err != nil {
			return fmt.Errorf("iprobe after the receive: %+v, %v", st, err)
		}
	}
	return nil
}

func matchedProbe(ctx context.Context, e Env) error {
	c := e.Comm
	for i, n := range []int{0, 30, 100_000} {
		var sends []mpi.Request
		for k := range 2 {
			s, err := c.Isend(pattern(n, c.Rank(), k), e.right(), i)
			if err != nil {
				return err
			}
			sends = append(sends, s)
		}
		first, st, err := c.Mprobe(ctx, e.left(), i)
		if err := status("mprobe", st, err, e.left(), i, n); err != nil {
			return err
		}
		// The next receive gets the next message: this one is taken.
		in := make([]byte, n)
		st, err = c.Recv(ctx, in, mpi.AnySource, i)
		if err := errors.Join(status("receive", st, err, e.left(), i, n), same("the second message", in, pattern(n, e.left(), 1))); err != nil {
			return err
		}
		if i%2 == 0 {
			st, err = first.Recv(ctx, in)
		} else {
			var r mpi.Request
			if r, err = first.Irecv(in); err == nil {
				st, err = r.Wait(ctx)
			}
		}
		_, again := first.Recv(ctx, in)
		if err := errors.Join(status("the first message", st, err, e.left(), i, n), same("the first message", in, pattern(n, e.left(), 0)),
			answers("a second receive of it", again, mpi.ErrClosed), mpi.WaitAll(ctx, sends, nil)); err != nil {
			return err
		}
	}
	m, st, ok, err := c.Improbe(e.left(), 0)
	return errors.Join(none("improbe of nothing", st, err), must(!ok && m == nil, "improbe: a message that nobody sent"))
}

// concurrentProbes: several goroutines take messages; the sizes tell them apart.
func concurrentProbes(ctx context.Context, e Env) error {
	c := e.Comm
	const n, workers = 60, 3
	var sends []mpi.Request
	for i := range n {
		s, err := c.Isend(pattern(i+1, c.Rank(), i), e.right(), 0)
		if err != nil {
			return err
		}
		sends = append(sends, s)
	}
	type took struct {
		sizes []int
		err   error
	}
	results := make(chan took, workers)
	for range workers {
		go func() {
			var t took
			for range n / workers {
				m, st, err := c.Mprobe(ctx, mpi.AnySource, 0)
				if err == nil {
					in := make([]byte, st.Bytes)
					if _, err = m.Recv(ctx, in); err == nil {
						err = same("taken", in, pattern(st.Bytes, e.left(), st.Bytes-1))
					}
				}
				if t.err = err; err != nil {
					break
				}
				t.sizes = append(t.sizes, st.Bytes)
				runtime.Gosched()
			}
			results <- t
		}()
	}
	seen := map[int]bool{}
	var errs []error
	for range workers {
		t := <-results
		errs = append(errs, t.err)
		for i, size := range t.sizes {
			errs = append(errs, must(!seen[size], "the message of %d bytes was taken twice", size),
				must(i == 0 || t.sizes[i-1] < size, "one taker got the message of %d bytes after that of %d", size, t.sizes[max(0, i-1)]))
			seen[size] = true
		}
	}
	return errors.Join(append(errs, must(len(seen) == n, "%d of %d messages were taken", len(seen), n), mpi.WaitAll(ctx, sends, nil))...)
}

// planes: messages wait while collectives go on, and wildcards see no
// collective's traffic.
func planes(ctx context.Context, e Env) error {
	c := e.Comm
	r, err := c.Irecv(make([]byte, 1), mpi.AnySource, mpi.AnyTag)
	if err != nil {
		return err
	}
	for i := range 20 {
		all, err := allgather(ctx, c, int64(c.Rank()))
		if err != nil {
			return err
		}
		d, err := c.Split(ctx, c.Rank()%2, i)
		if err != nil {
			return err
		}
		if err := errors.Join(must(all[c.Size()-1] == int64(c.Size()-1), "allgather: %v", all), d.Close(), mpi.Barrier(ctx, c)); err != nil {
			return err
		}
	}
	if st, done, err := r.Status(); done || err != nil {
		return fmt.Errorf("a receive got a collective's message: %+v, %v", st, err)
	}
	if err := mpi.Barrier(ctx, c); err != nil { // all have looked
		return err
	}
	if err := c.Send(ctx, []byte{1}, e.right(), 8); err != nil {
		return err
	}
	st, err := r.Wait(ctx)
	return status("message", st, err, e.left(), 8, 1)
}
