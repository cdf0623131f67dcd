package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/ferrympi/ferry/mpi"
)

// The cost of a message behind a queue. Rank 1 sends as many messages of 8 bytes as the
// queue is deep, each with another tag. Rank 0 has posted their receives before
// (posted), or posts them after all messages have arrived (unexpected). Receives and messages
// have the same order (forwards), opposite orders (backwards), or random ones;
// wildcards is backwards with receives from any source.

// The tags of messages about the others follow those.
const (
	mostDeep = 100_000
	matchGo  = mostDeep + iota
	matchSent
)

// queues are the values of --queue.
func queues() (list []string) {
	for _, queue := range []string{"posted", "unexpected"} {
		for _, order := range []string{"forwards", "backwards", "random", "wildcards"} {
			list = append(list, queue+"/"+order)
		}
	}
	return list
}

// matching measures each queue, order and depth.
func (r *rank) matching(ctx context.Context) error {
	for _, queue := range queues() {
		if r.o.onlyQueue != "" && r.o.onlyQueue != queue {
			continue
		}
		what, order, _ := strings.Cut(queue, "/")
		for depth := r.o.depthMin; depth <= r.o.depthMax; depth *= 10 {
			if err := r.matchRow(ctx, what, order, depth); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *rank) matchRow(ctx context.Context, queue, order string, depth int) error {
	l := r.o.loop(0, max(3, mostDeep/depth), max(1, mostDeep/depth/10), 0, 0)
	q := &deepQueue{r: r, receiveTags: orderOf(order, depth), isWildcard: order == "wildcards", messageBufs: make([]byte, 8*depth), reqs: make([]mpi.Request, depth)}
	once := q.posted
	if queue == "unexpected" {
		once = q.unexpected
	}
	return r.row(ctx, depth, func() (Row, error) {
		s := newSample()
		for i := range l.warmupIterations + l.iterations {
			var d time.Duration
			var err error
			if r.comm.Rank() == 0 {
				d, err = once(ctx)
			} else {
				err = q.send(ctx)
			}
			if err != nil {
				return Row{}, err
			}
			if i >= l.warmupIterations {
				s.add(d, depth)
			}
		}
		return s.times(Row{Bench: fmt.Sprintf("%s/%s/%s", r.o.name, queue, order), Unit: "ns"}, 1), nil
	})
}

// orderOf returns the tags in the order of rank 0's receives. Messages have
// ascending tags.
func orderOf(order string, depth int) []int {
	tags := make([]int, depth)
	for i := range tags {
		tags[i] = i
	}
	switch order {
	case "backwards", "wildcards":
		slices.Reverse(tags)
	case "random":
		rand.New(rand.NewPCG(1, 2)).Shuffle(depth, func(i, k int) { tags[i], tags[k] = tags[k], tags[i] })
	}
	return tags
}

// deepQueue is one row's.
type deepQueue struct {
	r           *rank
	receiveTags []int
	// Receives are from any source.
	isWildcard  bool
	messageBufs []byte
	reqs        []mpi.Request
}

// post posts all receives.
func (q *deepQueue) post() (err error) {
	source := 1
	if q.isWildcard {
		source = mpi.AnySource
	}
	for i, tag := range q.receiveTags {
		if q.reqs[i], err = q.r.comm.Irecv(q.messageBufs[8*i:8*i+8], source, tag); err != nil {
			return err
		}
	}
	return nil
}

// posted times the arrival of messages with posted receives.
func (q *deepQueue) posted(ctx context.Context) (time.Duration, error) {
	if err := q.post(); err != nil {
		return 0, err
	}
	start := time.Now()
	if err := q.r.comm.Send(ctx, nil, 1, matchGo); err != nil {
		return 0, err
	}
	if err := mpi.WaitAll(ctx, q.reqs, nil); err != nil {
		return 0, err
	}
	d := time.Since(start)
	_, err := q.r.comm.Recv(ctx, nil, 1, matchSent)
	return d, err
}

// unexpected times receives of messages that have arrived.
func (q *deepQueue) unexpected(ctx context.Context) (time.Duration, error) {
	if err := q.r.comm.Send(ctx, nil, 1, matchGo); err != nil {
		return 0, err
	}
	if _, err := q.r.comm.Recv(ctx, nil, 1, matchSent); err != nil { // it was sent last
		return 0, err
	}
	start := time.Now()
	if err := q.post(); err != nil {
		return 0, err
	}
	err := mpi.WaitAll(ctx, q.reqs, nil)
	return time.Since(start), err
}

// send is rank 1's part.
func (q *deepQueue) send(ctx context.Context) (err error) {
	c := q.r.comm
	if _, err := c.Recv(ctx, nil, 0, matchGo); err != nil {
		return err
	}
	for tag := range q.reqs {
		if q.reqs[tag], err = c.Isend(q.messageBufs[8*tag:8*tag+8], 0, tag); err != nil {
			return err
		}
	}
	if err := c.Send(ctx, nil, 0, matchSent); err != nil {
		return err
	}
	return mpi.WaitAll(ctx, q.reqs, nil)
}
