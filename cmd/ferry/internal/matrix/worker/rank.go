package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/internal/bench"
	"github.com/ferrympi/ferry/cmd/ferry/internal/conform"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/plan"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
	"github.com/ferrympi/ferry/mpi"
)

// A Scribe takes down what becomes of the cases of one process, one at a time.
type CaseRecorder interface {
	Begin(cell string) // nothing new if that one runs already
	End(Event)         // of the case that runs; its Case and Seconds are the scribe's to know
}

// ranks runs cases as one of the ranks of a job. After an error the session stays
// open: to close it may take as long as what has failed.
func (w *worker) runRank(ctx context.Context) error {
	if w.task.Name == report.OpenCase {
		w.Begin(report.OpenCase)
	}
	session, err := mpi.OpenSession(ctx, w.sessionOptions...)
	if err != nil {
		return err
	}
	if w.isAdded() {
		if _, err := conform.RunIfAdded(ctx, session, w.task.Limit); err != nil {
			return err
		}
		return session.Close()
	}
	world, err := settings.World(ctx, session, "ferry.matrix")
	if err != nil {
		return err
	}
	switch {
	case w.task.Name == report.OpenCase:
		var e Event
		if e, err = CheckNeighbors(ctx, session, world); err == nil {
			w.End(e)
		}
	case w.task.Bench != nil:
		cell := w.task.Cells[0]
		w.Begin(cell)
		stop := reportActivity(activityInterval, func() uint64 { return countMessages(session) }, func() { w.writeEvent(Event{Case: cell}) })
		err = Measure(ctx, session, world, w.task.Column, func(p report.Point) { w.writeEvent(Event{Case: cell, Points: []report.Point{p}}) })
		stop()
		if err == nil {
			w.End(Event{Status: report.Pass})
		}
	default:
		err = Conform(ctx, session, world, w.task.Column, w.task.Limit, w)
	}
	if err != nil {
		return err
	}
	return errors.Join(world.Close(), session.Close())
}

// Greet has every rank exchange a message with the next one. The event says what
// carries it.
func CheckNeighbors(ctx context.Context, session *mpi.Session, world *mpi.Comm) (Event, error) {
	e := Event{Status: report.Pass}
	n := world.Size()
	next := (world.Rank() + 1) % n
	if _, err := world.Sendrecv(ctx, []byte{1}, next, 0, make([]byte, 1), (world.Rank()+n-1)%n, 0); err != nil {
		return e, err
	}
	about, err := session.Explain(ctx)
	if err != nil {
		return e, err
	}
	for _, p := range about.Pairs {
		if p.To != next {
			continue
		}
		e.Device = p.Device
		for _, note := range p.Notes {
			if text, ok := strings.CutPrefix(note, "tags: "); ok {
				e.Mode = text
			}
		}
	}
	return e, mpi.Barrier(ctx, world)
}

// newsEvery is how often a benchmark is looked at: its sizes have as many messages as OSU's,
// and on a machine that has much else to do one size may take longer than a case may be silent.
const activityInterval = time.Second

// whileItGoesOn tells at every interval whether a count has changed, until it is stopped.
func reportActivity(every time.Duration, count func() uint64, report func()) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for last := count(); ; {
			select {
			case <-end:
				return
			case <-ticker.C:
			}
			if now := count(); now != last {
				last = now
				report()
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// messages is how many this process has exchanged with others.
func countMessages(s *mpi.Session) (n uint64) {
	for _, p := range s.Stats().Peers {
		n += p.Sent + p.Received
	}
	return n
}

// Measure runs the benchmark of a column with all ranks of a communicator. Rank 0 receives the figures. They are
// medians, because a pause of the machine changes the mean of a short loop.
func Measure(ctx context.Context, session *mpi.Session, comm *mpi.Comm, c plan.Column, each func(report.Point)) error {
	n := 0
	err := bench.Within(ctx, session, comm, c.Bench, func(row bench.Row) {
		n++
		each(report.Point{Size: row.Size, Value: row.P50, Unit: c.Unit})
	})
	if err == nil && n == 0 && comm.Rank() == 0 {
		err = errors.New("it gave no figures")
	}
	return err
}

// Tell puts what ranks say of a case into its row: the worst outcome, the longest
// time, the figures, and each reason once. Who gives a reason for what is wrong is
// named by name; nil: there is only one.
func MergeEvents(row *report.Row, events []Event, name func(rank int) string) {
	for _, e := range events {
		row.Status = worseStatus(row.Status, e.Status)
		row.Seconds = max(row.Seconds, e.Seconds)
		row.Points = append(row.Points, e.Points...)
	}
	if !row.Status.Bad() {
		name = nil
	}
	row.Reason = JoinReasons(events, name)
}

// worse returns the worse of two statuses; "" is none yet.
func worseStatus(a, b report.Status) report.Status {
	for _, s := range report.Statuses {
		if a == s || b == s {
			return s
		}
	}
	return ""
}

// mostNamed is how many ranks that say the same are named.
const maxNamedRanks = 3

// Together is the reasons of ranks, each once, with who gives it if name is not nil.
func JoinReasons(events []Event, name func(rank int) string) string {
	var lines []string
	for i, e := range events {
		same := func(o Event) bool { return o.Reason == e.Reason }
		if e.Reason == "" || slices.ContainsFunc(events[:i], same) {
			continue
		}
		line := e.Reason
		if name != nil {
			var ranks []int
			for _, o := range events[i:] {
				if same(o) {
					ranks = append(ranks, o.Rank)
				}
			}
			slices.Sort(ranks)
			var names []string
			for _, rank := range ranks[:min(len(ranks), maxNamedRanks)] {
				names = append(names, name(rank))
			}
			if more := len(ranks) - maxNamedRanks; more > 0 {
				names = append(names, fmt.Sprintf("%d more", more))
			}
			line = strings.Join(names, ", ") + ": " + line
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}
