package explain

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/ferrympi/ferry/assembly"
	"github.com/ferrympi/ferry/assembly/pairtable"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/text"
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
	pairtable.Write(&p.b, width, &assembly.Explanation{Pairs: e.Pairs, UnusedProcs: e.UnusedProcs, CommTables: e.CommTables})
	if detail >= Components {
		p.learned()
		p.components()
	}
	if detail >= All {
		p.collectives()
	}
	_, err := io.WriteString(w, text.Printable(p.b.String(), "\n"))
	return err
}

// printer collects the lines of an explanation.
type printer struct {
	Explanation
	width int
	b     strings.Builder
}

// components writes the verdicts about components, and their requirements.
func (p *printer) components() {
	rows := [][]string{{"FRAMEWORK", "COMPONENT", "VERDICT", "REASON"}}
	for _, c := range p.Components {
		verdict, reason := c.Verdict, c.Reason
		if c.Hint != "" {
			reason += " (" + c.Hint + ")"
		}
		if c.IsUsed != nil && !*c.IsUsed {
			verdict, reason = "not used", "it is open, and carries no messages between these ranks"
		}
		if c.VerdictRanks != nil {
			reason = strings.TrimSpace(fmt.Sprintf("%s [ranks %s]", reason, text.Numbers(c.VerdictRanks)))
		}
		rows = append(rows, []string{c.Framework, c.Name, verdict, cmp.Or(reason, "-")})
	}
	text.Section(&p.b, p.width, rows)
	if len(p.Requirements) > 0 {
		p.b.WriteByte('\n')
	}
	for _, n := range p.Requirements {
		text.Wrap(&p.b, p.width, "", n.String())
	}
}

// learned writes the measurements of large messages.
func (p *printer) learned() {
	rows := [][]string{{"FROM", "TO", "MESSAGES", "USED", "GB/S", "OTHERS (GB/S, MESSAGES)", "PROBES"}}
	for _, pair := range p.Pairs {
		for _, l := range pair.TransferEstimates {
			used, speed := "-", "-"
			var others []string
			for _, e := range l.Protocols {
				if e.Used {
					used, speed = e.Protocol, fmt.Sprintf("%.1f", e.GBs)
				} else {
					others = append(others, fmt.Sprintf("%s %.1f, %d", e.Protocol, e.GBs, e.Messages))
				}
			}
			from := fmt.Sprint(pair.ToRank) + pairtable.StreamOf(pair.ToStream)
			if pair.ToNamespace != "" {
				from = pair.ToNamespace + ":" + from
			}
			rows = append(rows, []string{from, fmt.Sprint(pair.FromRank) + pairtable.StreamOf(pair.FromStream), l.Kind(), used, speed, cmp.Or(strings.Join(others, "; "), "-"), fmt.Sprint(l.Probes)})
		}
	}
	text.Section(&p.b, p.width, rows)
}

// collectives writes a table for each number of members.
func (p *printer) collectives() {
	heads := []string{"OPERATION", "FROM SIZE", "COMPONENT", "ALGORITHM"}
	for i := 0; i < len(p.Collectives); {
		members, rows := p.Collectives[i].MemberCount, [][]string{heads}
		for ; i < len(p.Collectives) && p.Collectives[i].MemberCount == members; i++ {
			c := p.Collectives[i]
			rows = append(rows, []string{c.Operation, fmt.Sprint(framework.Size(c.FromBytes)), c.Component, c.Algorithm})
		}
		fmt.Fprintf(&p.b, "\nCollectives of %d ranks\n", members)
		text.Table(&p.b, p.width, rows)
	}
}
