package mpitest

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"slices"
	"time"

	"github.com/ferrympi/ferry/bootstrap/local/server"
)

// launcher runs the ranks of a job under a server. Its methods run on one goroutine.
type launcher struct {
	*run
	ctx        context.Context // Of the ranks.
	dir        string          // For segments.
	program    func(context.Context) error
	orders     *server.Queue[server.Order]
	endedRanks *server.Queue[*rank]

	// Number of ranks that have not returned.
	liveCount int
	// Ranks that must return though the job continues.
	departures []departure
	// Set to the first deadline of departures.
	departureTimer *time.Timer
}

// departure is a rank that must return by a time.
type departure struct {
	rank       *rank
	deadlineAt time.Time
	// The reason, for messages.
	why string
}

// do runs the ranks under a launcher of their own.
func (r *run) do(ctx context.Context, dir string, f func(context.Context) error) {
	l := &launcher{run: r, dir: dir, program: f, orders: server.NewQueue[server.Order](), endedRanks: server.NewQueue[*rank](), departureTimer: time.NewTimer(0)}
	defer l.departureTimer.Stop()
	var err error
	r.server, err = server.New(server.Options{Size: r.job.Size, MaxProcs: r.job.MaxRanks, Nodes: r.job.Nodes, Psets: r.job.Psets, Order: l.orders.Add})
	if err != nil {
		r.wrong("%v", err)
		return
	}
	defer r.server.Close()
	if err := r.server.Listen(""); err != nil {
		r.wrong("%v", err)
		return
	}
	l.ctx, r.endContexts = context.WithCancelCause(ctx)
	r.ctxDone = l.ctx.Done()
	defer r.endContexts(nil)
	for number := range r.job.Size {
		l.start(number)
	}
	l.supervise()
	r.hangs(context.Cause(l.ctx))
	r.settleFailures()
}

// start starts a rank.
func (l *launcher) start(number int) {
	r := &rank{run: l.run, rank: number, environ: l.server.Environ(number)}
	ctx, end := context.WithCancelCause(l.ctx)
	r.endContext = end
	l.mu.Lock()
	l.ranks[number] = r
	l.mu.Unlock()
	l.liveCount++
	go pprof.Do(ctx, pprof.Labels(labelRank, fmt.Sprint(number)), func(ctx context.Context) {
		err := errGoexit
		defer func() {
			switch {
			case r.hasDied.Load():
			case err != nil:
				l.failed(number, err)
			default:
				l.server.ProcExited(number, "")
			}
			l.endedRanks.Add(r)
		}()
		err = r.do(ctx, l.dir, l.program)
	})
}

// supervise returns when all ranks have returned, or have not within endGrace of the end of their context.
func (l *launcher) supervise() {
	limit := time.NewTimer(l.job.Timeout)
	defer limit.Stop()
	ctxDone := l.ctxDone
	for l.liveCount > 0 {
		select {
		case <-l.endedRanks.Ready():
			for _, r := range l.endedRanks.Take() {
				l.remove(r)
			}
		case <-l.orders.Ready():
			for _, o := range l.orders.Take() {
				l.carryOut(o)
			}
		case <-l.departureTimer.C:
			l.endDepartures()
		case <-ctxDone:
			ctxDone = nil
			limit.Reset(l.endGrace())
		case <-limit.C:
			if l.isEnding() {
				return
			}
			l.dump() // Before the ranks leave the calls that they wait in.
			l.endContexts(errTime)
		}
	}
}

// remove removes a rank that has returned.
func (l *launcher) remove(r *rank) {
	l.liveCount--
	r.endContext(nil)
	l.mu.Lock()
	delete(l.ranks, r.rank)
	l.mu.Unlock()
	l.departures = slices.DeleteFunc(l.departures, func(d departure) bool { return d.rank == r })
	l.setTimer()
}

// carryOut carries out an order of the server.
func (l *launcher) carryOut(o server.Order) {
	switch o.Kind {
	case server.StartProcs:
		if l.isEnding() {
			l.server.Started(o.First, 0, errors.New("the job is ending"))
			return
		}
		for number := range o.N {
			l.start(o.First + number)
		}
		l.server.Started(o.First, o.N, nil)
	case server.EndProcs:
		l.depart(o.Ranks, "its change was undone", func(r *rank) { r.endContext(errUndone) })
	case server.AwaitExit:
		l.depart(o.Ranks, "it left by a change", func(*rank) {})
	}
}

// depart expects the ranks to return within Job.Grace. It calls f for each of them.
func (l *launcher) depart(ranks []int, why string, f func(*rank)) {
	l.mu.Lock()
	for _, number := range ranks {
		if r := l.ranks[number]; r != nil {
			l.departures = append(l.departures, departure{rank: r, deadlineAt: time.Now().Add(l.job.Grace), why: why})
			f(r)
		}
	}
	l.mu.Unlock()
	l.setTimer()
}

// endDepartures fails the job if the time of a rank is up.
func (l *launcher) endDepartures() {
	now := time.Now()
	for _, d := range l.departures {
		if d.deadlineAt.After(now) {
			continue
		}
		l.record(d.rank.rank, fmt.Errorf("%s %v ago, and it has not returned: return when Terminate is set, and when the context ends; it is at\n%s",
			d.why, l.job.Grace, stacks(l.name, fmt.Sprint(d.rank.rank))))
		l.endContexts(fmt.Errorf("%w: rank %d has not returned", errOther, d.rank.rank))
	}
	l.departures = slices.DeleteFunc(l.departures, func(d departure) bool { return !d.deadlineAt.After(now) })
	l.setTimer()
}

func (l *launcher) setTimer() {
	l.departureTimer.Stop()
	if len(l.departures) > 0 {
		first := slices.MinFunc(l.departures, func(a, b departure) int { return a.deadlineAt.Compare(b.deadlineAt) })
		l.departureTimer.Reset(time.Until(first.deadlineAt))
	}
}
