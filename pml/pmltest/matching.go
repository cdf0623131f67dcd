package pmltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/pml"
)

func matchCases() claims {
	return claims{
		kittest.Of("MessagesOfOneSenderStayInOrder", 2, order),
		kittest.Of("BlockedReceiveTakesTheFirstOfMany", 2, firstOfMany),
		kittest.Of("TagsPickOutOfOrder", 2, tags),
		kittest.Of("WildcardsTakeTheFirstThatCame", 3, wildcards),
		kittest.Of("ReceivesMatchInTheOrderOfPosting", 2, postingOrder),
		kittest.Of("UnexpectedMessagesKeepTheirContents", 2, unexpected),
		kittest.Of("PlanesNeverMatchEachOther", 2, planes),
		kittest.Of("ProbeLeavesTheMessage", 2, probe),
		kittest.Of("ManyGoroutinesDoNotMixTheirMessages", 2, goroutines),
		kittest.Of("ProcessReachesItself", 1, selfSends),
	}
}

// order mixes eager and large messages with one tag: none overtakes.
func order(ctx context.Context, f *fixture) error {
	const n = 300
	size := func(i int) int {
		if i%7 == 3 {
			return 20000 + i
		}
		return i % 50
	}
	return Each(f.comms, func(rank int, c pml.Comm) error {
		for i := range n {
			var err error
			if rank == 0 {
				err = send(ctx, c, 1, 5, data(i, size(i)))
			} else {
				err = want(ctx, c, 0, 5, data(i, size(i)), 0, 5)
			}
			if err != nil {
				return fmt.Errorf("message %d: %w", i, err)
			}
		}
		return nil
	})
}

// firstOfMany has messages of all kinds come at once while a receive begins.
func firstOfMany(ctx context.Context, f *fixture) error {
	for round := range 100 {
		comms := f.comms
		if round%2 == 0 { // whose members don't know each other yet, or will soon
			var err error
			if comms, err = f.Comm(f.policy); err != nil {
				return err
			}
		}
		sizes := []int{[]int{10, 20000, 0}[round%3], 30, 15000, 40, 50}
		release := f.hold(1)
		result := make(chan error, 1)
		go func() { result <- want(ctx, comms[1], 0, pml.AnyTag, data(0, sizes[0]), 0, 0) }()
		var reqs []pending
		for i, n := range sizes {
			r, err := isend(comms[0], 1, i, data(i, n), pml.Standard)
			if err != nil {
				release()
				return err
			}
			reqs = append(reqs, r)
		}
		release()
		if err := <-result; err != nil {
			return fmt.Errorf("round %d: the first: %w", round, err)
		}
		for i, n := range sizes[1:] {
			if err := want(ctx, comms[1], 0, pml.AnyTag, data(i+1, n), 0, i+1); err != nil {
				return fmt.Errorf("round %d: message %d: %w", round, i+1, err)
			}
		}
		for _, r := range reqs {
			if _, err := r.wait(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func tags(ctx context.Context, f *fixture) error {
	const n = 100
	return Each(f.comms, func(rank int, c pml.Comm) error {
		var reqs []pending
		for i := range n {
			if rank == 0 {
				r, err := isend(c, 1, i, data(i, i*200), pml.Standard)
				if err != nil {
					return err
				}
				reqs = append(reqs, r)
			} else if err := want(ctx, c, 0, n-1-i, data(n-1-i, (n-1-i)*200), 0, n-1-i); err != nil {
				return err
			}
		}
		for _, r := range reqs {
			if _, err := r.wait(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

func wildcards(ctx context.Context, f *fixture) error {
	// What a wildcard gets is what came first, and it is told whose it was. Of two
	// senders by two transports nobody can say who was first.
	sender := func(i int) int { return 1 + i%2 }
	if f.stack.Nodes > 1 {
		sender = func(int) int { return 1 }
	}
	for i := range 20 {
		from := sender(i)
		if err := send(ctx, f.comms[from], 0, i, data(i, 10+i)); err != nil {
			return err
		}
		if err := until(ctx, "arrival", func() bool { return f.unexpected(0) == i+1 }); err != nil {
			return err
		}
	}
	for i := range 20 {
		src, tag, from := pml.AnySource, pml.AnyTag, sender(i)
		if i%4 == 1 {
			tag = i
		}
		if i%4 == 2 {
			src = from
		}
		if err := want(ctx, f.comms[0], src, tag, data(i, 10+i), from, i); err != nil {
			return err
		}
	}
	return nil
}

func postingOrder(ctx context.Context, f *fixture) error {
	type post struct{ src, tag int }
	posts := []post{{0, 1}, {pml.AnySource, pml.AnyTag}, {0, 1}, {pml.AnySource, 1}, {0, pml.AnyTag}, {pml.AnySource, 2}}
	// Message k has tag sends[k], and belongs to receive meets[k].
	sends, meets := []int{1, 2, 2, 1, 1, 2}, []int{0, 1, 4, 2, 3, 5}
	c := f.comms[1]
	reqs, bufs := make([]pending, len(posts)), make([][]byte, len(posts))
	for i, p := range posts {
		bufs[i] = make([]byte, 8)
		var err error
		if reqs[i], err = irecv(c, p.src, p.tag, bufs[i]); err != nil {
			return err
		}
	}
	for k, tag := range sends {
		if err := send(ctx, f.comms[0], 1, tag, data(k, 8)); err != nil {
			return err
		}
	}
	for k, i := range meets {
		st, err := reqs[i].wait(ctx)
		if err == nil {
			err = compare(st, bufs[i], data(k, 8), 0, sends[k])
		}
		if err != nil {
			return fmt.Errorf("receive %d %+v: %w", i, posts[i], err)
		}
	}
	return nil
}

func unexpected(ctx context.Context, f *fixture) error {
	sizes := append([]int{0, 1, 63, 64, 65, 1000}, f.limits()...)
	var reqs []pending
	var sent [][]byte
	for i, n := range sizes {
		b := data(i, n)
		sent = append(sent, b)
		r, err := isend(f.comms[0], 1, i, b, pml.Standard)
		if err != nil {
			return err
		}
		reqs = append(reqs, r)
	}
	if err := until(ctx, "arrival of all", func() bool { return f.unexpected(1) == len(sizes) }); err != nil {
		return err
	}
	for i := range slices.Backward(sizes) {
		if err := want(ctx, f.comms[1], pml.AnySource, i, sent[i], 0, i); err != nil {
			return err
		}
	}
	for _, r := range reqs {
		if _, err := r.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

func planes(ctx context.Context, f *fixture) error {
	for plane := range pml.Plane(pml.Planes) {
		for _, n := range []int{4, 100000} {
			if err := f.onePlane(ctx, plane, n); err != nil {
				return fmt.Errorf("plane %d, %d bytes: %w", plane, n, err)
			}
		}
	}
	return nil
}

// onePlane sends one message on each plane; a receive on plane gets its own.
func (f *fixture) onePlane(ctx context.Context, plane pml.Plane, n int) error {
	var reqs []pending
	for k := range pml.Plane(pml.Planes) {
		r, err := started(f.comms[0].Isend(buffer(data(int(k), n)), 1, 3, k, pml.Standard))
		if err != nil {
			return err
		}
		reqs = append(reqs, r)
	}
	if err := until(ctx, "arrival", func() bool { return f.unexpected(1) == pml.Planes }); err != nil {
		return err
	}
	for i := range pml.Plane(pml.Planes) {
		k := (plane + i) % pml.Plane(pml.Planes)
		got := make([]byte, n)
		st, err := f.comms[1].Recv(ctx, buffer(got), pml.AnySource, pml.AnyTag, k)
		if err == nil {
			err = compare(st, got, data(int(k), n), 0, 3)
		}
		if err != nil {
			return err
		}
		if _, ok, err := f.comms[1].Iprobe(pml.AnySource, pml.AnyTag, k); ok || err != nil {
			return fmt.Errorf("plane %d has a message left: %v", k, err)
		}
	}
	for _, r := range reqs {
		if _, err := r.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

func probe(ctx context.Context, f *fixture) error {
	c := f.comms[1]
	if st, ok, err := c.Iprobe(pml.AnySource, pml.AnyTag, p2p); ok || err != nil || st.Source != pml.AnySource {
		return fmt.Errorf("iprobe of nothing: %+v %v %v", st, ok, err)
	}
	for i, n := range []int{0, 10, 100000} {
		found := make(chan error, 1)
		go func() { // blocked, or not: it must see the message either way
			st, err := c.Probe(ctx, 0, i, p2p)
			if err == nil && (st.Source != 0 || st.Tag != i || st.Bytes != n) {
				err = fmt.Errorf("probe: %+v", st)
			}
			found <- err
		}()
		r, err := isend(f.comms[0], 1, i, data(i, n), pml.Standard)
		if err != nil {
			return err
		}
		if err := <-found; err != nil {
			return err
		}
		for range 3 {
			st, ok, err := c.Iprobe(pml.AnySource, i, p2p)
			if err != nil || !ok || st.Bytes != n || st.Tag != i || st.Source != 0 {
				return fmt.Errorf("iprobe: %+v %v %v", st, ok, err)
			}
		}
		if _, ok, _ := c.Iprobe(0, i+1, p2p); ok {
			return errors.New("iprobe finds a message of another tag")
		}
		if err := want(ctx, c, 0, i, data(i, n), 0, i); err != nil {
			return err
		}
		if _, err := r.wait(ctx); err != nil {
			return err
		}
	}
	stop, cancel := context.WithCancelCause(ctx)
	cause := errors.New("enough")
	cancel(cause)
	if _, err := c.Probe(stop, 0, 1, p2p); !errors.Is(err, cause) {
		return fmt.Errorf("probe with an ended context: %v", err)
	}
	return nil
}

func goroutines(ctx context.Context, f *fixture) error {
	const many, rounds = 16, 60
	return Each(f.comms, func(rank int, c pml.Comm) error {
		errs := make([]error, many)
		var wg sync.WaitGroup
		for g := range many {
			wg.Go(func() {
				for i := range rounds {
					n := (g*97 + i*31) % 300
					if g == 0 {
						n = 30000
					}
					b := data(g*rounds+i, n)
					steps := []func() error{
						func() error { return send(ctx, c, 1-rank, g, b) },
						func() error { return want(ctx, c, 1-rank, g, b, 1-rank, g) },
					}
					for k := range steps {
						if err := steps[(k+rank)%2](); err != nil {
							errs[g] = fmt.Errorf("goroutine %d, round %d: %w", g, i, err)
							return
						}
					}
				}
			})
		}
		wg.Wait()
		return errors.Join(errs...)
	})
}

func selfSends(ctx context.Context, f *fixture) error {
	c := f.comms[0]
	for i, n := range append([]int{0, 8, 1 << 20}, f.limits()...) {
		b := data(i, n)
		r, err := isend(c, 0, i, b, pml.Standard)
		if err != nil {
			return err
		}
		if err := want(ctx, c, 0, i, b, 0, i); err != nil {
			return err
		}
		if _, err := r.wait(ctx); err != nil {
			return err
		}
		got := make([]byte, n)
		if r, err = irecv(c, pml.AnySource, pml.AnyTag, got); err != nil {
			return err
		}
		if err := c.Send(ctx, buffer(b), 0, i, p2p, pml.Synchronous); err != nil {
			return err
		}
		st, err := r.wait(ctx)
		if err == nil {
			err = compare(st, got, b, 0, i)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
