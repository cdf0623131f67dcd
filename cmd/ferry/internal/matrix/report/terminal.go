package report

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A Look is the appearance of text. The zero Look is plain lines of any length.
type Look struct {
	// Size of the terminal, or 0 if it is unknown.
	Width, Height int
	// Lines can be overwritten.
	IsLive   bool
	HasColor bool
}

// LookAt returns the look of a file. It respects NO_COLOR (https://no-color.org) and TERM=dumb.
func LookAt(f *os.File) Look {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return Look{} // no terminal
	}
	dumb := os.Getenv("TERM") == "dumb" || os.Getenv("TERM") == ""
	return Look{
		Width: int(size.Col), Height: int(size.Row),
		IsLive:   !dumb && size.Col > 0 && size.Row > 0,
		HasColor: !dumb && os.Getenv("NO_COLOR") == "",
	}
}

// colours of statuses are from the terminal's own palette.
var colours = map[Status]string{Fail: "31", Timeout: "35", Refused: "33", Unavailable: "90", Skip: "33", Pass: "32"}

// paint gives text the colour of a status, where there are colours.
func (l Look) paint(s Status, text string) string { return l.render(colours[s], text) }

// bold makes text stand out, where that is possible.
func (l Look) bold(text string) string { return l.render("1", text) }

func (l Look) render(how, text string) string {
	if !l.HasColor || text == "" {
		return text
	}
	return "\x1b[" + how + "m" + text + "\x1b[0m"
}

// cut shortens text to a number of columns. Printable text has one column for each
// character here; libraries name their providers in ASCII.
func cut(text string, width int) string {
	r := []rune(text)
	if width <= 0 || len(r) <= width {
		return text
	}
	return string(r[:width-1]) + "…"
}

// A Terminal is an Observer that displays the progress of a run. On a terminal it updates a table and prints a line
// for each failed case. Elsewhere it prints a line for each case. Close it before other output to the same file.
// Write errors are ignored, because the results are elsewhere.
type Terminal struct {
	// PrintsStarts adds a line for each case that begins, if there is no table, so that the output names the case of a
	// crash. It is set before the run.
	PrintsStarts bool

	w    io.Writer
	look Look

	mu      sync.Mutex
	beganAt time.Time
	// Of the available stacks.
	caseCounts   map[string]int
	totalCases   int
	report       Report             // Rows so far.
	runningCases map[string]started // By stack.
	// Number of table lines on the terminal.
	drawnLines  int
	stopUpdates chan struct{}
	updatesDone sync.WaitGroup
}

// started is a running case with its start time.
type started struct {
	caseName  string
	startedAt time.Time
}

// every is the interval of updates of the table.
const every = 200 * time.Millisecond

// NewTerminal returns an Observer that writes to w.
func NewTerminal(w io.Writer, look Look) *Terminal {
	return &Terminal{w: w, look: look, runningCases: map[string]started{}}
}

// Begin implements Observer.
func (t *Terminal) Begin(stacks []Stack, cases map[string]int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.beganAt, t.caseCounts = time.Now(), map[string]int{}
	t.report.Stacks = stacks
	for _, s := range stacks {
		if s.AbsentReason == "" {
			t.caseCounts[s.Name] = cases[s.Name]
			t.totalCases += cases[s.Name]
		}
	}
	fmt.Fprintf(t.w, "%s, %s\n", Plural(len(t.caseCounts), "stack"), Plural(t.totalCases, "case"))
	if !t.look.IsLive {
		return
	}
	t.show("", t.table())
	t.stopUpdates = make(chan struct{})
	t.updatesDone.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-t.stopUpdates:
				return
			case <-tick.C:
				t.mu.Lock()
				t.show("", t.table())
				t.mu.Unlock()
			}
		}
	})
}

// Running implements Observer.
func (t *Terminal) Running(stack, testCase string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.runningCases[stack].caseName == testCase {
		return
	}
	t.runningCases[stack] = started{testCase, time.Now()}
	if t.PrintsStarts && !t.look.IsLive {
		fmt.Fprintf(t.w, "%-11s  %s  %s\n", "running", oneLine(stack), oneLine(testCase))
	}
}

// Done implements Observer.
func (t *Terminal) Done(row Row) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.report.Rows = append(t.report.Rows, row)
	if t.runningCases[row.Stack].caseName == row.Case {
		delete(t.runningCases, row.Stack)
	}
	line := fmt.Sprintf("%s  %s  %s  %.2f s", t.look.paint(row.Status, fmt.Sprintf("%-11s", row.Status)), oneLine(row.Stack), oneLine(row.Case), row.Seconds)
	if row.Reason != "" {
		line += "  " + oneLine(row.Reason)
	}
	switch {
	case !t.look.IsLive && !row.Status.Absent(): // The report lists the absent ones.
		fmt.Fprintln(t.w, line)
	case row.Status.Bad():
		t.show(line+"\n", t.table())
	}
}

// Close removes the table. The Terminal cannot be used afterwards.
func (t *Terminal) Close() {
	if t.stopUpdates != nil {
		close(t.stopUpdates)
		t.updatesDone.Wait()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.show("", nil)
}

// show prints text in place of the table and the table below it. t.mu is held.
func (t *Terminal) show(text string, table []string) {
	if t.drawnLines > 0 {
		text = fmt.Sprintf("\x1b[%dA\r\x1b[J", t.drawnLines) + text
	}
	for _, line := range table {
		text += line + "\n"
	}
	t.drawnLines = len(table)
	io.WriteString(t.w, text)
}

// table returns the present state in lines that fit, because lines above the top of the terminal cannot be
// overwritten. Busy stacks come first if there are too many. Stacks that cannot be opened are left out.
func (t *Terminal) table() []string {
	now := t.report.Table()
	width := max(t.look.Width-1, 1)
	g := grid{{fields: append(now.heads("stack", "cases"), "running")}}
	var busy, idle grid
	done := 0
	for _, l := range now.Lines {
		if l.Stack.AbsentReason != "" {
			continue
		}
		done += l.Counts.Total()
		if l.Missing() != "" && l.Counts.Total() > 0 {
			continue
		}
		e := entry{state: l.Counts.State()}
		e.fields = l.fields(now, cut(oneLine(l.Stack.Name), max(t.look.Width/3, 8)), fmt.Sprintf("%d/%d", l.Counts.Total(), t.caseCounts[l.Stack.Name]))
		if run, is := t.runningCases[l.Stack.Name]; is {
			e.fields = append(e.fields, fmt.Sprintf("%s %.0f s", oneLine(run.caseName), time.Since(run.startedAt).Seconds()))
			busy = append(busy, e)
		} else {
			e.fields = append(e.fields, "")
			idle = append(idle, e)
		}
	}
	body := append(busy, idle...)
	room := max(t.look.Height-4, 1) // Without a header, a last line, a line above and the cursor.
	last := fmt.Sprintf("%d of %s, %.0f s", done, Plural(t.totalCases, "case"), time.Since(t.beganAt).Seconds())
	if more := len(body) - room; more > 0 {
		last = fmt.Sprintf("and %s; ", Plural(more, "more stack")) + last
		body = body[:room]
	}
	return append(append(g, body...).lines(t.look, width), cut(last, width))
}
