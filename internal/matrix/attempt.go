package matrix

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// mostLost is after how many workers in a row that were lost a column is given up:
// a stack that hangs would else take its limit once for each case.
const mostLost = 3

// An attempt is one worker that runs some cases of a column.
type attempt struct {
	r       *Runner
	stack   Stack
	column  column
	cases   []string
	reports []report // by case
	sent    int      // rows that are out; of those that were begun the last is held back
	out     *excerpt
	row     func(Row)
	about   func(event) // is told of open's findings
}

// A report is what ranks have said of one case.
type report struct {
	begun, ended int
	status       Status
	reasons      []string
	seconds      float64
}

// cases runs the cases of a column: as many by one worker as it survives.
func (r *Runner) cases(ctx context.Context, s Stack, c column, row func(Row), about func(event)) {
	todo, lost := c.cases, 0
	for len(todo) > 0 && ctx.Err() == nil {
		if lost == mostLost {
			for _, name := range todo {
				x := r.newRow(s, c, name)
				x.Status, x.Reason = Skip, fmt.Sprintf("not run: %d cases in a row were lost", mostLost)
				row(x)
			}
			return
		}
		a := &attempt{r: r, stack: s, column: c, cases: todo, reports: make([]report, len(todo)), out: &excerpt{}, row: row, about: about}
		end := r.work(ctx, assignment{
			task: task{Column: c.name, Via: s.Via, Cases: todo}, set: s.Set, ranks: c.ranks, limit: r.Limit, hear: a.hear, out: a.out,
		})
		if ctx.Err() != nil {
			return
		}
		a.finish(end)
		todo = todo[a.sent:]
		switch {
		case !end.lost():
			lost = 0
		case a.sent == 1:
			lost++
		default:
			lost = 1
		}
	}
}

// hear takes an event of one of the ranks.
func (a *attempt) hear(e event) error {
	i := slices.Index(a.cases, e.Case)
	if i < 0 || i < a.sent || e.Rank < 0 || e.Rank >= max(a.column.ranks, 1) {
		return fmt.Errorf("case %q of rank %d", e.Case, e.Rank)
	}
	p := &a.reports[i]
	if e.Status == "" {
		if p.begun == 0 {
			// What was begun before is over, and not the last.
			for a.sent < i && a.ended(a.sent) {
				a.send(a.outcome(a.sent))
			}
			a.r.running(a.stack, a.column.cell(e.Case))
		}
		p.begun++
		return nil
	}
	p.ended++
	p.seconds = max(p.seconds, e.Seconds)
	p.status = worse(p.status, e.Status)
	if e.Reason != "" {
		reason := e.Reason
		if a.column.ranks > 1 && e.Status == Fail {
			reason = fmt.Sprintf("rank %d: %s", e.Rank, reason)
		}
		if !slices.Contains(p.reasons, reason) {
			p.reasons = append(p.reasons, reason)
		}
	}
	if e.Device != "" || e.Mode != "" {
		a.about(e)
	}
	return nil
}

// worse returns the worse of two statuses; "" is none yet.
func worse(a, b Status) Status {
	for _, s := range Statuses {
		if a == s || b == s {
			return s
		}
	}
	return ""
}

// ended says whether all ranks have said what became of a case.
func (a *attempt) ended(i int) bool { return a.reports[i].ended == max(a.column.ranks, 1) }

// outcome is the row of a case as its ranks see it.
func (a *attempt) outcome(i int) Row {
	p := &a.reports[i]
	row := a.r.newRow(a.stack, a.column, a.cases[i])
	row.Status, row.Reason, row.Seconds = p.status, strings.Join(p.reasons, "; "), p.seconds
	return row
}

func (a *attempt) send(row Row) {
	output := a.out.take()
	if row.Status != Pass && row.Output == "" {
		row.Output = output
	}
	a.sent++
	a.row(row)
}

// finish makes the row of the last case that was begun, in view of how the worker
// ended. A worker that never began blames its first case.
func (a *attempt) finish(end ending) {
	i := a.sent
	if i == len(a.cases) {
		return
	}
	row := a.outcome(i)
	over := a.ended(i)
	said := row.Reason
	switch {
	case end.hung:
		row.Status = Timeout
		row.Reason = fmt.Sprintf("it did not end within %v", a.r.Limit)
		if over && a.reports[i].status == Pass {
			row.Reason = fmt.Sprintf("it passed, and then its process did not go on within %v", a.r.Limit)
		}
		row.Seconds = max(row.Seconds, a.r.Limit.Seconds())
	case !over:
		row.Status, row.Reason = Fail, end.how()
	case end.lost() && row.Status == Pass:
		row.Status, row.Reason = Fail, "it passed, and then "+end.how()
	default:
		said = ""
	}
	if said != "" {
		row.Reason += ": " + said
	}
	if row.Status != Pass {
		row.Output = end.output
	}
	a.send(row)
}

// measure runs a benchmark.
func (r *Runner) measure(ctx context.Context, s Stack, c column, row func(Row)) {
	x := r.newRow(s, c, "")
	r.running(s, x.Case)
	began := time.Now()
	points, end := r.bench(ctx, s, c)
	if ctx.Err() != nil {
		return
	}
	x.Status, x.Seconds, x.Points = Pass, time.Since(began).Seconds(), points
	switch {
	case end.hung:
		x.Status, x.Reason = Timeout, fmt.Sprintf("no figure came within %v", r.Limit)
	case end.lost():
		x.Status, x.Reason = Fail, end.how()
	case len(points) == 0:
		x.Status, x.Reason = Fail, "it gave no figures"
	}
	if x.Status != Pass {
		x.Output = end.output
	}
	row(x)
}
