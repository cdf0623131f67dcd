package report

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// A Terminal is an Observer that shows how a run goes: on a terminal as a table
// that is kept up to date, with a line above it for each case that goes wrong;
// elsewhere as a line for each case. Close it before anything else is written to
// the same place. What can't be written is lost: the results are elsewhere.
type Terminal struct {
	// Aloud is set before the run, if there is to be a line also for each case that
	// begins, where there is no table: a process that dies in it can say nothing more.
	Aloud bool

	w    io.Writer
	look Look

	mu      sync.Mutex
	begun   time.Time
	stacks  []Stack
	cases   map[string]int // of the stacks that are there
	total   int
	report  Report             // what has come so far
	running map[string]started // by stack
	drawn   int                // lines of the table that are on the terminal
	stop    chan struct{}
	stopped sync.WaitGroup
}

// started is a case that runs, and since when.
type started struct {
	name  string
	since time.Time
}

// every is how often the table is brought up to date: often enough to look alive.
const every = 200 * time.Millisecond

// NewTerminal returns an Observer that writes to w.
func NewTerminal(w io.Writer, look Look) *Terminal {
	return &Terminal{w: w, look: look, running: map[string]started{}}
}

// Begin implements Observer.
func (t *Terminal) Begin(stacks []Stack, cases map[string]int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun, t.stacks, t.cases = time.Now(), stacks, map[string]int{}
	t.report.Stacks = stacks
	for _, s := range stacks {
		if s.Reason == "" {
			t.cases[s.Name] = cases[s.Name]
			t.total += cases[s.Name]
		}
	}
	fmt.Fprintf(t.w, "%s, %s\n", Plural(len(t.cases), "stack"), Plural(t.total, "case"))
	if !t.look.Live {
		return
	}
	t.draw()
	t.stop = make(chan struct{})
	t.stopped.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-t.stop:
				return
			case <-tick.C:
				t.mu.Lock()
				t.draw()
				t.mu.Unlock()
			}
		}
	})
}

// Running implements Observer.
func (t *Terminal) Running(stack, testCase string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running[stack].name == testCase {
		return // it goes on
	}
	t.running[stack] = started{testCase, time.Now()}
	if t.Aloud && !t.look.Live {
		fmt.Fprintf(t.w, "%-11s  %s  %s\n", "running", oneLine(stack), oneLine(testCase))
	}
}

// Done implements Observer.
func (t *Terminal) Done(row Row) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.report.Rows = append(t.report.Rows, row)
	if t.running[row.Stack].name == row.Case {
		delete(t.running, row.Stack)
	}
	line := fmt.Sprintf("%s  %s  %s  %.2f s", t.look.paint(row.Status, fmt.Sprintf("%-11s", row.Status)), oneLine(row.Stack), oneLine(row.Case), row.Seconds)
	if row.Reason != "" {
		line += "  " + oneLine(row.Reason)
	}
	switch {
	case !t.look.Live:
		fmt.Fprintln(t.w, line)
	case row.Status.Bad():
		// Above the table, where it stays.
		t.clear()
		fmt.Fprintln(t.w, line)
		t.draw()
	}
}

// Close takes the table away. The Terminal is of no use afterwards.
func (t *Terminal) Close() {
	if t.stop != nil {
		close(t.stop)
		t.stopped.Wait()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clear()
}

// clear removes the table from the terminal, with t.mu held.
func (t *Terminal) clear() {
	if t.drawn > 0 {
		fmt.Fprintf(t.w, "\x1b[%dA\r\x1b[J", t.drawn)
		t.drawn = 0
	}
}

// draw writes the table where it was before, with t.mu held. It is never longer
// than the terminal, whose top can't be written over.
func (t *Terminal) draw() {
	lines := t.table()
	var b strings.Builder
	if t.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r", t.drawn)
	}
	for _, line := range lines {
		b.WriteString(line + "\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	t.drawn = len(lines)
	io.WriteString(t.w, b.String())
}

// table is the present state in lines that fit. Stacks that are busy come first
// when there is no room for all; those that can't be opened wait for the end.
func (t *Terminal) table() []string {
	now := t.report.Table()
	heads := []string{"stack", "cases"}
	for _, c := range now.Columns {
		heads = append(heads, oneLine(c))
	}
	grid := [][]string{append(heads, "running")}
	var busy, idle [][]string
	var worst []Status
	done := 0
	var idleWorst []Status
	for _, l := range now.Lines {
		if l.Stack.Reason == "" {
			done += l.Counts.Total()
		}
		if l.Missing() != "" && l.Counts.Total() > 0 || l.Stack.Reason != "" {
			continue
		}
		fields := []string{cut(oneLine(l.Stack.Name), max(t.look.Width/3, 8)), fmt.Sprintf("%d/%d", l.Counts.Total(), t.cases[l.Stack.Name])}
		for _, c := range l.Cells {
			fields = append(fields, c.String())
		}
		status := l.Counts.State()
		run, is := t.running[l.Stack.Name]
		if !is {
			idle, idleWorst = append(idle, append(fields, "")), append(idleWorst, status)
			continue
		}
		fields = append(fields, fmt.Sprintf("%s %.0f s", oneLine(run.name), time.Since(run.since).Seconds()))
		busy, worst = append(busy, fields), append(worst, status)
	}
	body, statuses := append(busy, idle...), append(worst, idleWorst...)
	room, more := t.look.Height-4, 0 // a header, a last line, what may come above, and the cursor
	if len(body) > max(room, 1) {
		more = len(body) - max(room, 1)
		body = body[:max(room, 1)]
	}
	grid = append(grid, body...)
	var lines []string
	for i, line := range align(grid) {
		line = cut(line, max(t.look.Width-1, 1))
		switch {
		case i == 0:
			line = t.look.bold(line)
		case statuses[i-1].Bad():
			line = t.look.paint(statuses[i-1], line)
		}
		lines = append(lines, line)
	}
	last := fmt.Sprintf("%d of %s, %.0f s", done, Plural(t.total, "case"), time.Since(t.begun).Seconds())
	if more > 0 {
		last = fmt.Sprintf("and %s; ", Plural(more, "more stack")) + last
	}
	return append(lines, cut(last, max(t.look.Width-1, 1)))
}
