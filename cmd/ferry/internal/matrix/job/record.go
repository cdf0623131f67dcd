package job

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/plan"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/worker"
)

// prepareStack saves the partial report and records the kits of a stack as skipped.
func (j *Job) prepareStack(stack int) {
	s := j.plan.Stacks[stack]
	if j.SavePartial != nil {
		j.SavePartial(j.record.Complete(fmt.Sprintf("no results after the start of stack %s (%d of %d)", s.Name, stack+1, len(j.plan.Stacks))))
	}
	for _, c := range j.plan.ColumnsByStack[stack] {
		if c.IsKit() {
			j.record.AddRow(s, j.Row(s, c, c.Name, report.Skip, "kits make processes of one node: run `ferry matrix` without --job there"))
		}
	}
}

// recordUnrun records the outcome of a stack without cases.
func (j *Job) recordUnrun(stack int, status report.Status, reason string) {
	s := j.plan.Stacks[stack]
	j.record.AddRow(s, j.Row(s, j.plan.ColumnsByStack[stack][0], report.OpenCase, status, reason))
}

// recordOwnLog records the log of rank 0 alone, if err keeps the others from sending theirs. A lost rank is a failure
// of the running case, or of report.OpenCase.
func (j *Job) recordOwnLog(stack int, v *stackRun, err error) {
	a := v.stackLog
	if isReported(err) && !slices.ContainsFunc(a.Events, func(e worker.Event) bool { return e.Status.Bad() }) {
		a.Events = append(a.Events, worker.Event{Case: report.OpenCase, Status: report.Fail, Reason: err.Error()})
	}
	if len(a.Events) > 0 {
		j.recordLogs(stack, []stackLog{a})
	}
}

// recordLogs records the combined rows of the logs, by rank. Cases without an event are recorded as not run if the
// logs are complete.
func (j *Job) recordLogs(stack int, logs []stackLog) {
	s := &j.record.Report.Stacks[stack]
	var lastCases []string
	isOpen := false
	for _, a := range logs {
		if a.LastCase != "" && !slices.Contains(lastCases, a.LastCase) {
			lastCases = append(lastCases, a.LastCase)
		}
		for _, e := range a.Events {
			if e.Case == report.OpenCase && e.Status == report.Pass {
				isOpen, s.Device, s.TagLayout = true, e.Device, e.TagLayout
			}
		}
	}
	for n, c := range j.plan.ColumnsByStack[stack] {
		if c.IsKit() || n > 0 && !isOpen {
			continue
		}
		for _, cell := range c.CellNames {
			row := j.mergeRow(*s, c, cell, logs)
			if row.Status == "" {
				if len(logs) < len(j.group) {
					continue
				}
				row.Status, row.IsAbandoned, row.Reason = report.Skip, true, "not run: the stack was given up after "+strings.Join(lastCases, ", ")
			}
			j.record.AddRow(*s, row)
		}
	}
}

// mergeRow combines the events of a case. A rank without a log counts as failed if another rank reports so. The
// Status is empty if there is no event.
func (j *Job) mergeRow(s report.Stack, c plan.Column, cell string, logs []stackLog) report.Row {
	var events []worker.Event
	for rank, a := range logs {
		for _, e := range a.Events {
			if e.Case != cell {
				continue
			}
			e.Rank = rank
			events = append(events, e)
			for _, other := range e.OtherRanks {
				if other >= len(logs) {
					events = append(events, worker.Event{Rank: other, Status: report.Fail, Reason: "it failed and its log is lost"})
				}
			}
		}
	}
	row := j.Row(s, c, cell, "", "")
	worker.MergeEvents(&row, events, j.describeRank)
	return row
}

// lossError returns the error of a run with lost ranks, or nil.
func (j *Job) lossError(statuses []rankStatus) error {
	if lost := j.joinReasons(statuses, func(w rankStatus) string { return w.LostReason }); lost != "" {
		return reportedError{errors.New(lost)}
	}
	return nil
}

// joinReasons lists each reason once, with its ranks.
func (j *Job) joinReasons(statuses []rankStatus, reasonOf func(rankStatus) string) string {
	events := make([]worker.Event, len(statuses))
	for rank, w := range statuses {
		events[rank] = worker.Event{Rank: rank, Reason: reasonOf(w)}
	}
	return worker.JoinReasons(events, j.describeRank)
}
