package watch

import (
	"fmt"
	"strings"

	"github.com/ferrympi/ferry/bootstrap/local/server"
	"github.com/ferrympi/ferry/internal/text"
)

// mostChanges is the number of changes that a page keeps.
const mostChanges = 1000

// A change is one line of the history of a job.
type change struct {
	// Consecutive from 1.
	Serial int64 `json:"serial"`
	// Since the start of the job.
	AtMillis int64  `json:"at"`
	Text     string `json:"text"`
	// Kind of the event of a set, or state of the rank. The page selects the color by it.
	Step string `json:"step"`
	// Edges of the graph. Op is empty for changes of ranks.
	Op string `json:"op,omitempty"`
	// The first ones, up to mostNames.
	Operands []string `json:"operands,omitempty"`
	Results  []string `json:"results,omitempty"`
}

// history is the latest changes of a job.
type history struct {
	keptChanges []change
	lastSerial  int64
}

func (h *history) add(c change) {
	h.lastSerial++
	c.Serial = h.lastSerial
	if len(h.keptChanges) == 2*mostChanges {
		h.keptChanges = h.keptChanges[:copy(h.keptChanges, h.keptChanges[mostChanges:])]
	}
	h.keptChanges = append(h.keptChanges, c)
}

// since returns the kept changes after one with a serial.
func (h *history) since(serial int64) []change {
	n := min(h.lastSerial-max(serial, 0), int64(len(h.keptChanges)), mostChanges)
	if n <= 0 {
		return nil
	}
	return append([]change(nil), h.keptChanges[len(h.keptChanges)-int(n):]...)
}

// psetChange describes a step of an operation.
func psetChange(ev server.PsetEvent) change {
	c := change{Step: ev.Kind.String(), Operands: printableAll(ev.Operands), Results: printableAll(ev.Results)}
	requester := fmt.Sprint("rank ", ev.Requester)
	if ev.IsOfUser {
		requester = "the user"
	}
	if ev.Kind == server.SetDeleted {
		c.Text = fmt.Sprintf("%s deleted by %s", list(c.Operands, ev.Operands), requester)
		return c
	}
	c.Op = ev.Op.String()
	subject := fmt.Sprintf("%s of %s", c.Op, list(c.Operands, ev.Operands))
	switch ev.Kind {
	case server.SetsMade:
		c.Text = fmt.Sprintf("%s by %s: %s", subject, requester, list(c.Results, ev.Results))
	case server.ChangeBegun:
		c.Text = fmt.Sprintf("%s requested by %s: %s", subject, requester, deltas(ev))
	case server.ChangeOpened:
		c.Text = subject + " is open: its members integrate it"
	case server.ChangeIntegrated:
		if c.Text = subject + " integrated"; ev.Text != "" {
			c.Text += ": its members continue with " + printable(ev.Text)
		}
	case server.ChangeUndone:
		c.Text = fmt.Sprintf("%s undone: %s", subject, printable(ev.Text))
	default:
		c.Text = fmt.Sprintf("%s %v", subject, ev.Kind)
	}
	return c
}

// deltas describes the numbers of processes of a change.
func deltas(ev server.PsetEvent) string {
	var parts []string
	if ev.Leaving > 0 {
		parts = append(parts, count(ev.Leaving, "rank leaves", "ranks leave"))
	}
	if ev.Joining > 0 {
		parts = append(parts, count(ev.Joining, "rank joins", "ranks join"))
	}
	return strings.Join(parts, ", ")
}

// procChange describes a change of a rank.
func procChange(ev server.ProcEvent) change {
	c := change{Step: ev.State.String()}
	switch ev.State {
	case server.ProcOpen:
		c.Text = fmt.Sprintf("rank %d opened a session", ev.Rank)
	case server.ProcFailed:
		c.Text = fmt.Sprintf("rank %d failed: %s", ev.Rank, printable(ev.Reason))
	default:
		c.Text = fmt.Sprintf("rank %d %v", ev.Rank, ev.State)
	}
	return c
}

// mostText is the number of bytes of a text of the job that the page shows. Names of sets may be longer.
const mostText = 200

// printable returns text of a rank for the page, without control characters.
func printable(s string) string {
	if len(s) > mostText {
		s = strings.ToValidUTF8(s[:mostText], "") + "..."
	}
	return text.Printable(s, "")
}

// mostNames is the number of sets of one side of an operation that the page shows.
const mostNames = 16

// printableAll returns the first names for the page.
func printableAll(all []string) []string {
	out := make([]string, min(len(all), mostNames))
	for i := range out {
		out[i] = printable(all[i])
	}
	return out
}

// list describes names. shown has the first ones of all.
func list(shown, all []string) string {
	text := strings.Join(shown, ", ")
	if more := len(all) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
