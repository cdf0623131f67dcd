package matrix

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/plan"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
)

// collect puts together what ranks say, each thing once, and who says it.
func (j *Job) collect(words []word, of func(word) string) string {
	texts := make([]string, len(words))
	for rank, w := range words {
		texts[rank] = of(w)
	}
	return j.together(texts)
}

// together is collect for texts, by rank.
func (j *Job) together(texts []string) string {
	var lines []string
	for rank, text := range texts {
		if text == "" || slices.Contains(texts[:rank], text) {
			continue
		}
		var who []string
		for other := rank; other < len(texts); other++ {
			if texts[other] == text {
				who = append(who, j.name(other))
			}
		}
		if len(who) > 3 {
			who = append(who[:3], fmt.Sprintf("%d more", len(who)-3))
		}
		lines = append(lines, strings.Join(who, ", ")+": "+text)
	}
	return strings.Join(lines, "; ")
}

// merge makes rows of what the ranks say. Cases of which none says anything were not
// run, if the accounts are those of all ranks.
func (j *Job) merge(stack int, run []plan.Column, accounts []account) {
	s := &j.report.Stacks[stack]
	var ended []string
	for _, a := range accounts {
		if a.Ended != "" && !slices.Contains(ended, a.Ended) {
			ended = append(ended, a.Ended)
		}
	}
	opened := false
	for _, a := range accounts {
		for _, f := range a.Findings {
			if f.Case == report.OpenCase && f.Status == report.Pass {
				opened, s.Device, s.Mode = true, f.Device, f.Mode
			}
		}
	}
	j.done(*s, j.row(*s, report.OpenCase, accounts))
	if !opened {
		return
	}
	for _, c := range run {
		for _, name := range c.Cases {
			row := j.row(*s, c.Cell(name), accounts)
			if c.Bench != nil {
				row.Ranks = 2
			}
			if row.Status == "" {
				if len(accounts) < len(j.group) {
					continue
				}
				row.Status, row.GivenUp, row.Reason = report.Skip, true, "not run: the stack was given up after "+strings.Join(ended, ", ")
			}
			j.done(*s, row)
		}
	}
}

// row is what the ranks say of a case, those whose accounts are missing through
// others. Its Status is empty if nobody says anything.
func (j *Job) row(s report.Stack, cell string, accounts []account) report.Row {
	row := j.newRow(s, cell)
	reasons := make([]string, len(j.group))
	for rank, a := range accounts {
		for _, f := range a.Findings {
			if f.Case != cell {
				continue
			}
			row.Status = worse(row.Status, f.Status)
			row.Seconds = max(row.Seconds, f.Seconds)
			reasons[rank] = f.Reason
			if f.Points != nil {
				row.Points = f.Points
			}
			for _, other := range f.Others {
				if other >= len(accounts) {
					row.Status = worse(row.Status, report.Fail)
					reasons[other] = "it failed, and can't say why any more"
				}
			}
		}
	}
	row.Reason = j.together(reasons)
	return row
}

// newRow is the row of a case, without its outcome.
func (j *Job) newRow(s report.Stack, cell string) report.Row {
	row := report.Row{Stack: s.Name, Provider: s.Provider, Case: cell, Ranks: len(j.group)}
	row.Command = j.again([]string{"ferry", "run", "-n", fmt.Sprint(len(j.group)), "ferry", "matrix", "--job"}, s, "^"+regexp.QuoteMeta(cell)+"$")
	return row
}

// outcome adds a row that is final.
func (j *Job) outcome(s report.Stack, cell string, status report.Status, reason string) {
	row := j.newRow(s, cell)
	row.Status, row.Reason = status, reason
	j.done(s, row)
}

// complete gives a report its rows, also of what was not run.
func (j *Job) complete(r *report.Report) {
	for i, s := range r.Stacks {
		open, tried := j.rows[[2]string{s.Name, report.OpenCase}]
		for _, cell := range j.cells(i) {
			row, ok := j.rows[[2]string{s.Name, cell}]
			if !ok && (tried && open.Status != report.Pass || r.Partial == "") {
				continue // there is no such stack
			}
			if !ok {
				row = j.newRow(s, cell)
				row.Status, row.Reason = report.Skip, "not run: "+r.Partial
			}
			r.Rows = append(r.Rows, row)
		}
	}
	r.Machine.Libraries = report.Libraries(r.Stacks)
	r.Seconds = time.Since(j.began).Seconds()
}
