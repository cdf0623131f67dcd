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

// All ranks keep a record; rank 0's has what others have said, too, and is the report.

// before hands on what there is before a stack, and says why its kits are not run.
func (j *Job) before(stack int) {
	s := j.plan.Stacks[stack]
	if j.Save != nil {
		j.Save(j.record.Complete(fmt.Sprintf("nothing was written after stack %s (%d of %d) had begun", s.Name, stack+1, len(j.plan.Stacks))))
	}
	for _, c := range j.plan.Columns[stack] {
		if c.Kit() {
			j.record.Done(s, j.Row(s, c, c.Name, report.Skip, "kits make processes of one node: run `ferry matrix` without --job there"))
		}
	}
}

// only is the outcome of a stack that is not run.
func (j *Job) only(stack int, status report.Status, reason string) {
	s := j.plan.Stacks[stack]
	j.record.Done(s, j.Row(s, j.plan.Columns[stack][0], report.OpenCase, status, reason))
}

// alone makes rows of what rank 0 has seen itself, where others can't tell because
// of err. A rank that was lost is the fault of the case that ran, or of the stack.
func (j *Job) alone(stack int, v *visit, err error) {
	a := v.account
	if isTold(err) && !slices.ContainsFunc(a.Said, func(e worker.Event) bool { return e.Status.Bad() }) {
		a.Said = append(a.Said, worker.Event{Case: report.OpenCase, Status: report.Fail, Reason: err.Error()})
	}
	if len(a.Said) > 0 {
		j.merge(stack, []account{a})
	}
}

// merge makes rows of what the ranks say. Cases of which none says anything were not
// run, if the accounts are those of all ranks.
func (j *Job) merge(stack int, accounts []account) {
	s := &j.record.Report.Stacks[stack]
	var ended []string
	opened := false
	for _, a := range accounts {
		if a.Ended != "" && !slices.Contains(ended, a.Ended) {
			ended = append(ended, a.Ended)
		}
		for _, e := range a.Said {
			if e.Case == report.OpenCase && e.Status == report.Pass {
				opened, s.Device, s.Mode = true, e.Device, e.Mode
			}
		}
	}
	for n, c := range j.plan.Columns[stack] {
		if c.Kit() || n > 0 && !opened {
			continue
		}
		for _, cell := range c.Cells {
			row := j.row(*s, c, cell, accounts)
			if row.Status == "" {
				if len(accounts) < len(j.group) {
					continue
				}
				row.Status, row.GivenUp, row.Reason = report.Skip, true, "not run: the stack was given up after "+strings.Join(ended, ", ")
			}
			j.record.Done(*s, row)
		}
	}
}

// row is what the ranks say of a case, those whose accounts are missing through
// others. Its Status is empty if nobody says anything.
func (j *Job) row(s report.Stack, c plan.Column, cell string, accounts []account) report.Row {
	var said []worker.Event
	for rank, a := range accounts {
		for _, e := range a.Said {
			if e.Case != cell {
				continue
			}
			e.Rank = rank
			said = append(said, e)
			for _, other := range e.Others {
				if other >= len(accounts) {
					said = append(said, worker.Event{Rank: other, Status: report.Fail, Reason: "it failed, and can no longer say why"})
				}
			}
		}
	}
	row := j.Row(s, c, cell, "", "")
	worker.Tell(&row, said, j.name)
	return row
}

// bereft is the error of a run that has lost ranks.
func (j *Job) bereft(words []word) error {
	if lost := j.collect(words, func(w word) string { return w.Lost }); lost != "" {
		return told{errors.New(lost)}
	}
	return nil
}

// collect puts together what ranks say, each thing once, and who says it.
func (j *Job) collect(words []word, of func(word) string) string {
	said := make([]worker.Event, len(words))
	for rank, w := range words {
		said[rank] = worker.Event{Rank: rank, Reason: of(w)}
	}
	return worker.Together(said, j.name)
}
