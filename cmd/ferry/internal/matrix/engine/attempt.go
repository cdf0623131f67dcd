package matrix

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/internal/conform"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/plan"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
)

// mostLost is after how many workers in a row that were lost a column is given up:
// a stack that hangs would else take its limit once for each case.
const mostLost = 3

// A lane is the run of one stack.
type lane struct {
	*Runner
	stack  *report.Stack
	waited time.Duration // for cases that did not end, and are not excluded
}

// An attempt is one worker that runs some cases of a column.
type attempt struct {
	*lane
	column  plan.Column
	cases   []string
	reports []state    // by case
	sent    int        // rows that are out
	last    report.Row // of them, as it is in the report
	limit   time.Duration
	out     *excerpt
}

// A state is what ranks have said of one case.
type state struct {
	begun, ended []bool // by rank
	sent         bool   // its row is out
	status       report.Status
	reasons      []string
	seconds      float64
}

// over says whether all ranks have said what became of the case.
func (p *state) over() bool { return !slices.Contains(p.ended, false) }

// newAttempt is one at some cases of a column.
func (l *lane) newAttempt(c plan.Column, cases []string) *attempt {
	a := &attempt{lane: l, column: c, cases: cases, reports: make([]state, len(cases)), limit: l.limit(c), out: &excerpt{}}
	for i := range a.reports {
		a.reports[i].begun, a.reports[i].ended = make([]bool, max(c.Ranks, 1)), make([]bool, max(c.Ranks, 1))
	}
	return a
}

// skip says that cases are not run, because the stack is given up.
func (l *lane) skip(c plan.Column, cases []string, why string) {
	for _, name := range cases {
		row := l.newRow(*l.stack, c, name)
		row.Status, row.Reason, row.GivenUp = report.Skip, "not run: "+why, true
		l.done(*l.stack, row)
	}
}

// impatient says why no further case of the stack is run; empty: there is no reason.
func (l *lane) impatient() string {
	if l.Suite.Patience == 0 || l.waited < l.Suite.Patience {
		return ""
	}
	return fmt.Sprintf("suite %s waits no longer for a stack whose cases did not end for %v; suite full does", l.Suite.Name, l.Suite.Patience)
}

// cases runs the cases of a column: as many by one worker as it survives. Losses that
// are excluded are no reason to give up. It returns the row that came last.
func (l *lane) cases(ctx context.Context, c plan.Column) (last report.Row) {
	todo, lost := c.Cases, 0
	for len(todo) > 0 && ctx.Err() == nil {
		why := l.impatient()
		if lost == mostLost {
			why = fmt.Sprintf("%d cases in a row were lost", mostLost)
		}
		if why != "" {
			l.skip(c, todo, why)
			return last
		}
		a := l.newAttempt(c, todo)
		end := l.work(ctx, assignment{
			task: task{Column: c.Name, Via: l.stack.Via, Cases: todo, Limit: max(conform.Limit, 2*a.limit)}, set: l.stack.Set, ranks: c.Ranks, limit: a.limit, hear: a.hear, out: a.out,
		})
		if ctx.Err() != nil {
			return last
		}
		a.finish(end)
		todo, last = a.left(), a.last
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
func (a *attempt) hear(e event) error {
	i := slices.Index(a.cases, e.Case)
	if i < 0 || e.Rank < 0 || e.Rank >= max(a.column.Ranks, 1) || a.reports[i].ended[e.Rank] {
		return fmt.Errorf("case %q of rank %d", e.Case, e.Rank)
	}
	p := &a.reports[i]
	if e.Status == "" {
		if !slices.Contains(p.begun, true) {
			a.running(*a.stack, a.column.Cell(e.Case))
		}
		p.begun[e.Rank] = true
		a.settle()
		return nil
	}
	p.ended[e.Rank] = true
	p.seconds = max(p.seconds, e.Seconds)
	p.status = worse(p.status, e.Status)
	if e.Reason != "" {
		reason := e.Reason
		if a.column.Ranks > 1 && e.Status.Bad() {
			reason = fmt.Sprintf("rank %d: %s", e.Rank, reason)
		}
		if !slices.Contains(p.reasons, reason) {
			p.reasons = append(p.reasons, reason)
		}
	}
	if e.Device != "" || e.Mode != "" {
		a.stack.Device, a.stack.Mode = e.Device, e.Mode
	}
	a.settle()
	return nil
}

// settle sends the rows of cases that are over, once a later one has begun: what
// becomes of the worker from then on is not theirs.
func (a *attempt) settle() {
	last := len(a.reports) - 1
	for last > 0 && !slices.Contains(a.reports[last].begun, true) {
		last--
	}
	for i := range last {
		if p := &a.reports[i]; !p.sent && p.over() {
			a.send(i, a.outcome(i))
		}
	}
}

// limit is how long a case of a column may take.
func (r *Runner) limit(c plan.Column) time.Duration {
	if c.Name == report.OpenCase {
		return max(r.Limit, r.Suite.Open)
	}
	return r.Limit
}

// left are the cases that have no row.
func (a *attempt) left() []string {
	var left []string
	for i, name := range a.cases {
		if !a.reports[i].sent {
			left = append(left, name)
		}
	}
	return left
}

// worse returns the worse of two statuses; "" is none yet.
func worse(a, b report.Status) report.Status {
	for _, s := range report.Statuses {
		if a == s || b == s {
			return s
		}
	}
	return ""
}

// outcome is the row of a case as its ranks see it.
func (a *attempt) outcome(i int) report.Row {
	p := &a.reports[i]
	row := a.newRow(*a.stack, a.column, a.cases[i])
	row.Status, row.Reason, row.Seconds = p.status, strings.Join(p.reasons, "; "), p.seconds
	return row
}

func (a *attempt) send(i int, row report.Row) {
	if row.Status != report.Pass && row.Output == "" {
		row.Output = a.out.String()
	}
	a.reports[i].sent = true
	a.sent++
	a.last = a.done(*a.stack, row)
}

// blame is the case that the worker's end belongs to: where the rank was that was
// lost first, or else the first that is not over.
func (a *attempt) blame(end ending) int {
	last := slices.IndexFunc(a.reports, func(p state) bool { return !p.sent })
	if end.hung || end.err != nil || len(end.result.Failures) == 0 {
		return last
	}
	rank := end.result.Failures[0].Rank
	for i := last + 1; i < len(a.reports); i++ {
		if p := &a.reports[i]; rank < len(p.begun) && p.begun[rank] && !p.sent {
			last = i
		}
	}
	return last
}

// finish makes the row of the case that the worker ended in, in view of how it did. A
// worker that never began blames its first case. Others that ranks were in, too, have
// no outcome: they run again.
func (a *attempt) finish(end ending) {
	if a.sent == len(a.cases) {
		return
	}
	i := a.blame(end)
	row := a.outcome(i)
	over := a.reports[i].over()
	said := row.Reason
	was := map[report.Status]string{report.Pass: "it passed", report.Skip: "it was skipped"}[row.Status] // "": it went wrong by itself
	switch {
	case end.hung:
		row.Status = report.Timeout
		row.Reason = fmt.Sprintf("it did not end within %v", a.limit)
		if over && was != "" {
			row.Reason = fmt.Sprintf("%s, and then its process did not go on within %v", was, a.limit)
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
	a.send(i, row)
}

// measure runs a benchmark.
func (l *lane) measure(ctx context.Context, c plan.Column) {
	if why := l.impatient(); why != "" {
		l.skip(c, c.Cases, why)
		return
	}
	row := l.newRow(*l.stack, c, "")
	l.running(*l.stack, row.Case)
	began := time.Now()
	points, end := l.bench(ctx, *l.stack, c)
	if ctx.Err() != nil {
		return
	}
	row.Status, row.Seconds, row.Points = report.Pass, time.Since(began).Seconds(), points
	switch {
	case end.hung:
		row.Status, row.Reason = report.Timeout, fmt.Sprintf("no figure came within %v", l.Limit)
	case end.lost():
		row.Status, row.Reason = report.Fail, end.how()
	case len(points) == 0:
		row.Status, row.Reason = report.Fail, "it gave no figures"
	}
	if row.Status != report.Pass {
		row.Output = end.output
	}
	if row = l.done(*l.stack, row); end.hung && row.Status.Bad() {
		l.waited += l.Limit
	}
}
