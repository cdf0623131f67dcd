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

// maxConsecutiveLosses is the number of consecutive lost workers after which a column is skipped. A hanging stack
// costs the full limit for each case.
const maxConsecutiveLosses = 3

// An attempt is one worker that runs the remaining cases of a column.
type attempt struct {
	*stackRun
	column     plan.Column
	caseStates []caseState // By cell.
	rowCount   int
	// Last recorded row as in the report, or zero.
	lastRow       report.Row
	hangLimit     time.Duration
	outputExcerpt *excerpt
	// isRepeated reports that the worker's last case has no row because it runs again.
	isRepeated bool
}

// A caseState is the progress of one case.
type caseState struct {
	events []Event
	hasRow bool
}

// hasEvent reports whether the rank has begun the case, or ended it if isEnd.
func (p *caseState) hasEvent(rank int, isEnd bool) bool {
	return slices.ContainsFunc(p.events, func(e Event) bool { return e.Rank == rank && (!isEnd || e.Status != "") })
}

// isComplete reports whether all ranks have ended the case.
func (a *attempt) isComplete(p *caseState) bool {
	for rank := range max(a.column.ProcessCount, 1) {
		if !p.hasEvent(rank, true) {
			return false
		}
	}
	return true
}

// newAttempt returns an attempt at all cells of the column.
func (l *stackRun) newAttempt(c plan.Column) *attempt {
	return &attempt{stackRun: l, column: c, caseStates: make([]caseState, len(c.CellNames)), hangLimit: l.record.LimitOf(*l.stack, c), outputExcerpt: &excerpt{}}
}

// abandonReason returns the reason to skip the remaining cases of the stack, or "".
func (l *stackRun) abandonReason() string {
	patience := l.record.Suite.HangBudget
	if patience == 0 || l.timeoutTotal < patience {
		return ""
	}
	return fmt.Sprintf("suite %s gives up on a stack whose cases did not end for %v in all; suite full does not", l.record.Suite.Name, patience)
}

// runCases runs the cases of a column with as few workers as possible, and returns the last row. Excluded losses do
// not count against the stack.
func (l *stackRun) runCases(ctx context.Context, c plan.Column) (last report.Row) {
	for lost := 0; len(c.CellNames) > 0 && ctx.Err() == nil; {
		why := l.abandonReason()
		if lost == maxConsecutiveLosses {
			why = fmt.Sprintf("%d cases in a row were lost", maxConsecutiveLosses)
		}
		if why != "" {
			for _, cell := range c.CellNames {
				row := l.record.Row(*l.stack, c, cell, report.Skip, "not run: "+why)
				row.IsAbandoned = true
				l.record.AddRow(*l.stack, row)
			}
			return last
		}
		a := l.newAttempt(c)
		end := l.runWorker(ctx, assignment{
			stack: *l.stack, task: task{Column: c, CaseLimit: max(conform.Limit, 2*a.hangLimit)}, hangLimit: a.hangLimit, onEvent: a.addEvent, outputExcerpt: a.outputExcerpt, workerEnv: settings.Environ(c.SetParams),
		})
		if ctx.Err() != nil {
			return last
		}
		a.recordEnd(end)
		c.CellNames = a.remainingCells()
		if a.isRepeated {
			continue
		}
		last = a.lastRow
		if !end.isLost() || a.rowCount > 1 {
			lost = 0
		}
		if end.isLost() && last.Status.Bad() {
			lost++
		}
		if end.isHung && last.Status.Bad() {
			l.timeoutTotal += a.hangLimit
		}
	}
	return last
}

// addEvent records an event of a rank. An event that does not fit the column is an error.
func (a *attempt) addEvent(e Event) error {
	i := slices.Index(a.column.CellNames, e.Case)
	if i < 0 || e.Rank < 0 || e.Rank >= max(a.column.ProcessCount, 1) || a.caseStates[i].hasEvent(e.Rank, true) {
		return fmt.Errorf("case %q of rank %d", e.Case, e.Rank)
	}
	p := &a.caseStates[i]
	if len(p.events) == 0 {
		a.record.BeginCase(*a.stack, e.Case)
	}
	if p.hasEvent(e.Rank, false) && e.Status == "" && len(e.Points) == 0 {
		return nil
	}
	p.events = append(p.events, e)
	if e.Device != "" || e.TagLayout != "" {
		a.stack.Device, a.stack.TagLayout = e.Device, e.TagLayout
	}
	a.recordComplete()
	return nil
}

// recordComplete records the rows of complete cases before the last one begun. The end of the worker no longer
// affects them.
func (a *attempt) recordComplete() {
	last := len(a.caseStates) - 1
	for last > 0 && len(a.caseStates[last].events) == 0 {
		last--
	}
	for i := range last {
		if p := &a.caseStates[i]; !p.hasRow && a.isComplete(p) {
			a.recordRow(i, a.mergeRow(i))
		}
	}
}

// remainingCells returns the cells without a row.
func (a *attempt) remainingCells() []string {
	var left []string
	for i, cell := range a.column.CellNames {
		if !a.caseStates[i].hasRow {
			left = append(left, cell)
		}
	}
	return left
}

// mergeRow combines the events of a case.
func (a *attempt) mergeRow(i int) report.Row {
	row := a.record.Row(*a.stack, a.column, a.column.CellNames[i], "", "")
	var name func(int) string
	if a.column.ProcessCount > 1 {
		name = func(rank int) string { return fmt.Sprint("rank ", rank) }
	}
	MergeEvents(&row, a.caseStates[i].events, name)
	return row
}

func (a *attempt) recordRow(i int, row report.Row) {
	if row.Status != report.Pass && row.OutputTail == "" {
		row.OutputTail = a.outputExcerpt.String()
	}
	row.RetryReason = a.retryReasons[row.Case]
	a.caseStates[i].hasRow = true
	a.rowCount++
	a.lastRow = a.record.AddRow(*a.stack, row)
}

// failedIndex returns the case that ended the worker: the last one begun by the first lost rank, else the first one
// without a row.
func (a *attempt) failedIndex(end workerExit) int {
	last := slices.IndexFunc(a.caseStates, func(p caseState) bool { return !p.hasRow })
	if end.isHung || end.err != nil || len(end.jobResult.Failures) == 0 {
		return last
	}
	rank := end.jobResult.Failures[0].Rank
	for i := last + 1; i < len(a.caseStates); i++ {
		if p := &a.caseStates[i]; p.hasEvent(rank, false) && !p.hasRow {
			last = i
		}
	}
	return last
}

// recordEnd records the row of the case that ended the worker, or the first case if none has begun. Other incomplete
// cases run again.
func (a *attempt) recordEnd(end workerExit) {
	if a.rowCount == len(a.column.CellNames) {
		return
	}
	i := a.failedIndex(end)
	row := a.mergeRow(i)
	isComplete := a.isComplete(&a.caseStates[i])
	reason := row.Reason
	ending := map[report.Status]string{report.Pass: "it passed", report.Skip: "it was skipped"}[row.Status]
	switch {
	case end.isHung:
		row.Status = report.Timeout
		row.Reason = fmt.Sprintf("it did not end within %v", a.hangLimit)
		if isComplete && ending != "" {
			row.Reason = fmt.Sprintf("%s, and then its process did not continue within %v", ending, a.hangLimit)
		}
		row.Seconds = max(row.Seconds, a.hangLimit.Seconds())
	case !isComplete:
		row.Status, row.Reason = report.Fail, end.describe()
	case end.isLost() && ending != "":
		row.Status, row.Reason = report.Fail, ending+", and then "+end.describe()
	default:
		reason = ""
	}
	if reason != "" {
		row.Reason += ": " + reason
	}
	if row.Status != report.Pass {
		row.OutputTail = end.outputText
	}
	if end.isHung && a.retryIfBusy(row) {
		return
	}
	a.recordRow(i, row)
}
