package explain

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/ferrympi/ferry/cmd/ferry/internal/launch"
	"github.com/ferrympi/ferry/cmd/ferry/internal/text"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
)

// Detail is how much Print writes. Each adds to those before.
type Detail int

const (
	Pairs      Detail = iota // Pairs, with notes and unused addresses.
	Components               // Verdicts about components, and the learned protocols.
	All                      // Algorithms of collectives.
)

// Print writes tables for readers in lines of at most width columns, with control characters of the ranks escaped.
// Equal pairs share a row.
func (e Explanation) Print(w io.Writer, detail Detail, width int) error {
	p := printer{Explanation: e, width: width}
	p.pairs()
	p.tables()
	p.notes()
	p.addresses()
	if detail >= Components {
		p.learned()
		p.components()
	}
	if detail >= All {
		p.collectives()
	}
	_, err := io.WriteString(w, launch.Printable(p.b.String(), "\n"))
	return err
}

// printer collects the lines of an explanation.
type printer struct {
	Explanation
	width int
	b     strings.Builder
}

// table writes a table below a blank line. A table without rows below the heads is left out.
func (p *printer) table(rows [][]string) {
	if len(rows) < 2 {
		return
	}
	if p.b.Len() > 0 {
		p.b.WriteByte('\n')
	}
	text.Table(&p.b, p.width, rows)
}

// legend describes the columns of the table of pairs.
const legend = "0-3 x 0-3 is each of these ranks with each other. NOT USED lists the other transports, each with the reason."

func (p *printer) pairs() {
	rows := [][]string{{"PAIRS", "PML", "TRANSPORT", "DEVICE", "PROVIDER", "NOT USED"}}
	p.group(func(p mpi.Pair) []string {
		var not []string
		for _, r := range p.Rejected {
			not = append(not, r.Name+": "+r.Reason)
		}
		return []string{columns(p.PML, cmp.Or(p.Transport, "no transport"), cmp.Or(withoutPorts(p.Device), "-"),
			cmp.Or(p.Provider, "-"), cmp.Or(strings.Join(not, "; "), "-"))}
	}, func(what string, pairs pairs) {
		for _, block := range pairs.blocks() {
			rows = append(rows, append([]string{block}, strings.Split(what, "\t")...))
		}
	})
	p.table(rows)
	text.Wrap(&p.b, p.width, "", legend)
}

// notes writes the notes about pairs.
func (p *printer) notes() {
	first := true
	p.group(func(p mpi.Pair) (notes []string) {
		for _, n := range p.Notes {
			notes = append(notes, withoutPorts(n))
		}
		return notes
	}, func(note string, pairs pairs) {
		if first {
			p.b.WriteByte('\n')
			first = false
		}
		text.Wrap(&p.b, p.width, "", fmt.Sprintf("%s [%s]", note, pairs))
	})
}

// addresses writes the unused addresses.
func (p *printer) addresses() {
	rows := [][]string{{"ADDRESS", "NOT USED BECAUSE", "PAIRS"}}
	p.group(func(p mpi.Pair) (unused []string) {
		for _, u := range p.Unused {
			unused = append(unused, columns(u.Name, u.Reason))
		}
		return unused
	}, func(address string, pairs pairs) {
		rows = append(rows, append(strings.Split(address, "\t"), pairs.String()))
	})
	p.table(rows)
}

// components writes the verdicts about components, and their requirements.
func (p *printer) components() {
	rows := [][]string{{"FRAMEWORK", "COMPONENT", "VERDICT", "REASON"}}
	for _, c := range p.Components {
		verdict, reason := c.Verdict, c.Reason
		if c.Hint != "" {
			reason += " (" + c.Hint + ")"
		}
		if c.Used != nil && !*c.Used {
			verdict, reason = "not used", "it is open, and carries no messages between these ranks"
		}
		if c.Ranks != nil {
			reason = strings.TrimSpace(fmt.Sprintf("%s [ranks %s]", reason, text.Numbers(c.Ranks)))
		}
		rows = append(rows, []string{c.Framework, c.Name, verdict, cmp.Or(reason, "-")})
	}
	p.table(rows)
	if len(p.Requirements) > 0 {
		p.b.WriteByte('\n')
	}
	for _, n := range p.Requirements {
		text.Wrap(&p.b, p.width, "", n.String())
	}
}

// tables writes the tables of communicators, and the number of pairs that were not used.
func (p *printer) tables() {
	pairs := 0
	for _, u := range p.Unused {
		pairs += u.Processes
	}
	if pairs > 0 || len(p.Tables) > 0 {
		p.b.WriteByte('\n')
	}
	if pairs > 0 {
		text.Wrap(&p.b, p.width, "", fmt.Sprintf("%d other pairs on different nodes: not used", pairs))
	}
	for _, t := range p.Tables {
		text.Wrap(&p.b, p.width, "", t.String())
	}
}

// learned writes the measurements of large messages.
func (p *printer) learned() {
	rows := [][]string{{"FROM", "TO", "MESSAGES", "USED", "GB/S", "OTHERS (GB/S, MESSAGES)", "TRIES"}}
	for _, pair := range p.Pairs {
		for _, l := range pair.Learnt {
			used, speed := "-", "-"
			var others []string
			for _, way := range l.Ways {
				if way.Used {
					used, speed = way.Way, fmt.Sprintf("%.1f", way.GBs)
				} else {
					others = append(others, fmt.Sprintf("%s %.1f, %d", way.Way, way.GBs, way.Messages))
				}
			}
			from := fmt.Sprint(pair.To) + streamOf(pair.ToStream)
			if pair.Namespace != "" {
				from = pair.Namespace + ":" + from
			}
			rows = append(rows, []string{from, fmt.Sprint(pair.From) + streamOf(pair.Stream), l.Kind(), used, speed, cmp.Or(strings.Join(others, "; "), "-"), fmt.Sprint(l.Tries)})
		}
	}
	p.table(rows)
}

// collectives writes a table for each number of members.
func (p *printer) collectives() {
	heads := []string{"OPERATION", "FROM SIZE", "COMPONENT", "ALGORITHM"}
	for i := 0; i < len(p.Collectives); {
		members, rows := p.Collectives[i].Members, [][]string{heads}
		for ; i < len(p.Collectives) && p.Collectives[i].Members == members; i++ {
			c := p.Collectives[i]
			rows = append(rows, []string{c.Operation, fmt.Sprint(framework.Size(c.From)), c.Component, c.Algorithm})
		}
		fmt.Fprintf(&p.b, "\nCollectives of %d ranks\n", members)
		text.Table(&p.b, p.width, rows)
	}
}

// columns joins the cells of a row, which come from ranks, by tabs. Line ends and tabs in a cell are spaces.
func columns(cells ...string) string {
	for i, cell := range cells {
		cells[i] = strings.Join(strings.Fields(cell), " ")
	}
	return strings.Join(cells, "\t")
}

// group calls f for each text that is said of pairs, in the order in which they come.
func (e Explanation) group(say func(mpi.Pair) []string, f func(string, pairs)) {
	var texts []string
	said := map[string]pairs{}
	for _, p := range e.Pairs {
		for _, text := range say(p) {
			if said[text] == nil {
				texts = append(texts, text)
				said[text] = pairs{}
			}
			to := end{namespace: p.Namespace, rank: p.To, streams: [2]int{p.Stream, p.ToStream}}
			said[text][p.From] = append(said[text][p.From], to)
		}
	}
	for _, text := range texts {
		f(text, said[text])
	}
}

// withoutPorts leaves out the ports of addresses: they differ from pair to pair, and --json has
// them.
func withoutPorts(text string) string {
	words := strings.Split(text, " ")
	for i, w := range words {
		bare := strings.TrimRight(w, ",;")
		if a, err := netip.ParseAddrPort(bare); err == nil {
			words[i] = a.Addr().String() + w[len(bare):]
		}
	}
	return strings.Join(words, " ")
}
