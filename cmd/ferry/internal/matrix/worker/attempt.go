package worker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/internal/conform"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/plan"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
)

// mostLost is after how many workers in a row that were lost a column is given up:
// a stack that hangs would else take its limit once for each case.
const mostLost = 3

// An attempt is one worker that runs some cases of a column.
type attempt struct {
	*lane
	column plan.Column // with the cells that are to run
	states []state     // by cell
	sent   int         // rows that are out
	last   report.Row  // The newest of them, as it is in the report; before the first one, zero.
	limit  time.Duration
	out    *excerpt
	// isRepeated reports that the last case of the worker has no row, because it runs again.
	isRepeated bool
}

// A state is what ranks have said of one case.
type state struct {
	said []Event
	sent bool // its row is out
}

// is says whether a rank has begun the case, or ended it.
func (p *state) is(rank int, ended bool) bool {
	return slices.ContainsFunc(p.said, func(e Event) bool { return e.Rank == rank && (!ended || e.Status != "") })
}

// over says whether all ranks have said what became of the case.
func (a *attempt) over(p *state) bool {
	for rank := range max(a.column.Ranks, 1) {
		if !p.is(rank, true) {
			return false
		}
	}
	return true
}

// newAttempt is one at some cases of a column.
func (l *lane) newAttempt(c plan.Column) *attempt {
	return &attempt{lane: l, column: c, states: make([]state, len(c.Cells)), limit: l.record.LimitOf(*l.stack, c), out: &excerpt{}}
}

// impatient says why no further case of the stack is run; empty: there is no reason.
func (l *lane) impatient() string {
	patience := l.record.Suite.Patience
	if patience == 0 || l.waited < patience {
		return ""
	}
	return fmt.Sprintf("suite %s gives up on a stack whose cases did not end for %v in all; suite full does not", l.record.Suite.Name, patience)
}

// cases runs the cases of a column: as many by one worker as it survives. Losses that
// are excluded are no reason to give up. It returns the row that came last.
func (l *lane) cases(ctx context.Context, c plan.Column) (last report.Row) {
	for lost := 0; len(c.Cells) > 0 && ctx.Err() == nil; {
		why := l.impatient()
		if lost == mostLost {
			why = fmt.Sprintf("%d cases in a row were lost", mostLost)
		}
		if why != "" {
			for _, cell := range c.Cells {
				row := l.record.Row(*l.stack, c, cell, report.Skip, "not run: "+why)
				row.GivenUp = true
				l.record.Done(*l.stack, row)
			}
			return last
		}
		a := l.newAttempt(c)
		end := l.work(ctx, assignment{
			stack: *l.stack, task: task{Column: c, Limit: max(conform.Limit, 2*a.limit)}, limit: a.limit, hear: a.hear, out: a.out, env: settings.Environ(c.Set),
		})
		if ctx.Err() != nil {
			return last
		}
		a.finish(end)
		c.Cells = a.left()
		if a.isRepeated {
			continue
		}
		last = a.last
		if !end.lost() || a.sent > 1 {
			lost = 0
		}
		if end.lost() && last.Status.Bad() {
			lost++
		}
		if end.hung && last.Status.Bad() {
			l.waited += a.limit
		}
	}
	return last
}

// hear takes an event of one of the ranks.
func (a *attempt) hear(e Event) error {
	i := slices.Index(a.column.Cells, e.Case)
	if i < 0 || e.Rank < 0 || e.Rank >= max(a.column.Ranks, 1) || a.states[i].is(e.Rank, true) {
		return fmt.Errorf("case %q of rank %d", e.Case, e.Rank)
	}
	p := &a.states[i]
	if len(p.said) == 0 {
		a.record.Running(*a.stack, e.Case)
	}
	if p.is(e.Rank, false) && e.Status == "" && len(e.Points) == 0 {
		return nil // it goes on
	}
	p.said = append(p.said, e)
	if e.Device != "" || e.Mode != "" {
		a.stack.Device, a.stack.Mode = e.Device, e.Mode
	}
	a.settle()
	return nil
}

// settle sends the rows of cases that are over, once a later one has begun: what
// becomes of the worker from then on is not theirs.
func (a *attempt) settle() {
	last := len(a.states) - 1
	for last > 0 && len(a.states[last].said) == 0 {
		last--
	}
	for i := range last {
		if p := &a.states[i]; !p.sent && a.over(p) {
			a.send(i, a.outcome(i))
		}
	}
}

// left are the cases that have no row.
func (a *attempt) left() []string {
	var left []string
	for i, cell := range a.column.Cells {
		if !a.states[i].sent {
			left = append(left, cell)
		}
	}
	return left
}

// outcome is the row of a case as its ranks see it.
func (a *attempt) outcome(i int) report.Row {
	row := a.record.Row(*a.stack, a.column, a.column.Cells[i], "", "")
	var name func(int) string
	if a.column.Ranks > 1 {
		name = func(rank int) string { return fmt.Sprint("rank ", rank) }
	}
	Tell(&row, a.states[i].said, name)
	return row
}

func (a *attempt) send(i int, row report.Row) {
	if row.Status != report.Pass && row.Output == "" {
		row.Output = a.out.String()
	}
	row.Retried = a.retried[row.Case]
	a.states[i].sent = true
	a.sent++
	a.last = a.record.Done(*a.stack, row)
}

// blame is the case that the worker's end belongs to: where the rank was that was
// lost first, or else the first that is not over.
func (a *attempt) blame(end ending) int {
	last := slices.IndexFunc(a.states, func(p state) bool { return !p.sent })
	if end.hung || end.err != nil || len(end.result.Failures) == 0 {
		return last
	}
	rank := end.result.Failures[0].Rank
	for i := last + 1; i < len(a.states); i++ {
		if p := &a.states[i]; p.is(rank, false) && !p.sent {
			last = i
		}
	}
	return last
}

// finish makes the row of the case that the worker ended in, in view of how it did. A
// worker that never began blames its first case. Others that ranks were in, too, have
// no outcome: they run again.
func (a *attempt) finish(end ending) {
	if a.sent == len(a.column.Cells) {
		return
	}
	i := a.blame(end)
	row := a.outcome(i)
	over := a.over(&a.states[i])
	said := row.Reason
	was := map[report.Status]string{report.Pass: "it passed", report.Skip: "it was skipped"}[row.Status] // "": it went wrong by itself
	switch {
	case end.hung:
		row.Status = report.Timeout
		row.Reason = fmt.Sprintf("it did not end within %v", a.limit)
		if over && was != "" {
			row.Reason = fmt.Sprintf("%s, and then its process did not continue within %v", was, a.limit)
		}
		row.Seconds = max(row.Seconds, a.limit.Seconds())
	case !over:
		row.Status, row.Reason = report.Fail, end.how()
	case end.lost() && was != "":
		row.Status, row.Reason = report.Fail, was+", and then "+end.how()
	default:
		said = ""
	}
	if said != "" {
		row.Reason += ": " + said
	}
	if row.Status != report.Pass {
		row.Output = end.output
	}
	if end.hung && a.repeats(row) {
		return
	}
	a.send(i, row)
}
