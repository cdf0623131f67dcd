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

// A lane is the run of one stack.
type lane struct {
	*Runner
	stack  *Stack
	waited time.Duration // for cases that did not end
}

// An attempt is one worker that runs some cases of a column.
type attempt struct {
	*lane
	column  column
	cases   []string
	reports []report // by case
	sent    int      // rows that are out; of those that were begun the last is held back
	out     *excerpt
	row     func(Row)
}

// A report is what ranks have said of one case.
type report struct {
	begun, ended int
	status       Status
	reasons      []string
	seconds      float64
}

// skip says that cases are not run.
func (l *lane) skip(c column, cases []string, why string) {
	for _, name := range cases {
		row := l.newRow(*l.stack, c, name)
		row.Status, row.Reason = Skip, "not run: "+why
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

// cases runs the cases of a column: as many by one worker as it survives.
func (l *lane) cases(ctx context.Context, c column, row func(Row)) {
	todo, lost := c.cases, 0
	for len(todo) > 0 && ctx.Err() == nil {
		why := l.impatient()
		if lost == mostLost {
			why = fmt.Sprintf("%d cases in a row were lost", mostLost)
		}
		if why != "" {
			l.skip(c, todo, why)
			return
		}
		a := &attempt{lane: l, column: c, cases: todo, reports: make([]report, len(todo)), out: &excerpt{}, row: row}
		end := l.work(ctx, assignment{
			task: task{Column: c.name, Via: l.stack.Via, Cases: todo}, set: l.stack.Set, ranks: c.ranks, limit: l.Limit, hear: a.hear, out: a.out,
		})
		if ctx.Err() != nil {
			return
		}
		a.finish(end)
		todo = todo[a.sent:]
		if end.hung {
			l.waited += l.Limit
		}
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
			a.running(*a.stack, a.column.cell(e.Case))
		}
		p.begun++
		return nil
	}
	p.ended++
	p.seconds = max(p.seconds, e.Seconds)
	p.status = worse(p.status, e.Status)
	if e.Reason != "" {
		reason := e.Reason
		if a.column.ranks > 1 && e.Status.Bad() {
			reason = fmt.Sprintf("rank %d: %s", e.Rank, reason)
		}
		if !slices.Contains(p.reasons, reason) {
			p.reasons = append(p.reasons, reason)
		}
	}
	if e.Device != "" || e.Mode != "" {
		a.stack.Device, a.stack.Mode = e.Device, e.Mode
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
	row := a.newRow(*a.stack, a.column, a.cases[i])
	row.Status, row.Reason, row.Seconds = p.status, strings.Join(p.reasons, "; "), p.seconds
	return row
}

func (a *attempt) send(row Row) {
	if row.Status != Pass && row.Output == "" {
		row.Output = a.out.String()
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
		row.Reason = fmt.Sprintf("it did not end within %v", a.Limit)
		if over && a.reports[i].status == Pass {
			row.Reason = fmt.Sprintf("it passed, and then its process did not go on within %v", a.Limit)
		}
		row.Seconds = max(row.Seconds, a.Limit.Seconds())
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
func (l *lane) measure(ctx context.Context, c column) {
	if why := l.impatient(); why != "" {
		l.skip(c, c.cases, why)
		return
	}
	row := l.newRow(*l.stack, c, "")
	l.running(*l.stack, row.Case)
	began := time.Now()
	points, end := l.bench(ctx, *l.stack, c)
	if ctx.Err() != nil {
		return
	}
	row.Status, row.Seconds, row.Points = Pass, time.Since(began).Seconds(), points
	switch {
	case end.hung:
		l.waited += l.Limit
		row.Status, row.Reason = Timeout, fmt.Sprintf("no figure came within %v", l.Limit)
	case end.lost():
		row.Status, row.Reason = Fail, end.how()
	case len(points) == 0:
		row.Status, row.Reason = Fail, "it gave no figures"
	}
	if row.Status != Pass {
		row.Output = end.output
	}
	l.done(*l.stack, row)
}
