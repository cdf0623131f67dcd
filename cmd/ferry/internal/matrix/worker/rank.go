package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/internal/conform"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
	"github.com/ferrympi/ferry/mpi"
)

// runRank runs cases as one rank of a job. After an error the session stays open, because closing it may block as
// long as the failed operation.
func (w *worker) runRank(ctx context.Context) error {
	if w.task.Name == report.OpenCase {
		w.Begin(report.OpenCase)
	}
	session, err := mpi.OpenSession(ctx, w.sessionOptions...)
	if err != nil {
		return err
	}
	if w.isAdded() {
		if _, err := conform.RunIfAdded(ctx, session, w.task.CaseLimit); err != nil {
			return err
		}
		return session.Close()
	}
	x := &Executor{Session: session, Recorder: w, CaseLimit: w.task.CaseLimit}
	var world *mpi.Comm
	if w.task.Name == report.OpenCase {
		world, err = x.Open(ctx)
	} else if world, err = settings.World(ctx, session, "ferry.matrix"); err == nil {
		err = x.Run(ctx, world, w.task.Column)
	}
	if err != nil {
		return err
	}
	return errors.Join(world.Close(), session.Close())
}

// checkNeighbors exchanges a message with the neighbor ranks. The event has the device.
func checkNeighbors(ctx context.Context, session *mpi.Session, world *mpi.Comm) (Event, error) {
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
		if p.ToRank != next {
			continue
		}
		e.Device = p.Device
		for _, note := range p.FeatureNotes {
			if text, ok := strings.CutPrefix(note, "tags: "); ok {
				e.TagLayout = text
			}
		}
	}
	return e, mpi.Barrier(ctx, world)
}

// reportActivity calls report after each interval in which the count has changed, until stop is called.
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

// countMessages returns the number of messages that this process has exchanged.
func countMessages(s *mpi.Session) (n uint64) {
	for _, p := range s.Stats().Peers {
		n += p.Sent + p.Received
	}
	return n
}

// MergeEvents merges the events of a case into its row: the worst status, the longest time, all figures, and each
// reason once. Reasons of failures have the names of their ranks if name is not nil.
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

// worseStatus returns the worse of two statuses. "" is the best.
func worseStatus(a, b report.Status) report.Status {
	for _, s := range report.Statuses {
		if a == s || b == s {
			return s
		}
	}
	return ""
}

// maxNamedRanks is the number of ranks named with the same reason.
const maxNamedRanks = 3

// JoinReasons lists each reason once, with the names of its ranks if name is not nil.
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
