// Package pairtable lays out the routes of messages between pairs of processes as text. `ferry run --explain` prints it
// for all ranks, and rank 0 of a job of another launcher prints its own routes with the parameter explain.
//
// It stands on the assembly's explanations and on internal/text. It writes to no file and sends no message.
package pairtable

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"github.com/ferrympi/ferry/assembly"
	"github.com/ferrympi/ferry/internal/text"
)

// Write writes the pairs of x, the tables of its communicators, the notes about pairs and the unused addresses, in lines of
// at most width columns. Equal pairs share a row. Text of other processes is written as it is (text.Printable).
func Write(b *strings.Builder, width int, x *assembly.Explanation) {
	p := printer{b, width, x}
	p.pairs()
	p.tables()
	p.notes()
	p.addresses()
}

// printer writes the parts of an explanation.
type printer struct {
	b     *strings.Builder
	width int
	x     *assembly.Explanation
}

// legend describes the columns of the table of pairs.
const legend = "0-3 x 0-3 is each of these ranks with each other. NOT USED lists the other transports, each with the reason."

func (p *printer) pairs() {
	rows := [][]string{{"PAIRS", "PML", "TRANSPORT", "DEVICE", "PROVIDER", "NOT USED"}}
	group(p.x.Pairs, func(p assembly.Pair) []string {
		var not []string
		for _, r := range p.RejectedTransports {
			not = append(not, r.Name+": "+r.Reason)
		}
		return []string{columns(p.PML, cmp.Or(p.Transport, "no transport"), cmp.Or(withoutPorts(p.Device), "-"),
			cmp.Or(p.Provider, "-"), cmp.Or(strings.Join(not, "; "), "-"))}
	}, func(route string, pairs pairs) {
		for _, block := range pairs.blocks() {
			rows = append(rows, append([]string{block}, strings.Split(route, "\t")...))
		}
	})
	text.Section(p.b, p.width, rows)
	text.Wrap(p.b, p.width, "", legend)
}

// notes writes the notes about pairs.
func (p *printer) notes() {
	first := true
	group(p.x.Pairs, func(p assembly.Pair) (notes []string) {
		for _, n := range p.FeatureNotes {
			notes = append(notes, withoutPorts(n))
		}
		return notes
	}, func(note string, pairs pairs) {
		if first {
			p.b.WriteByte('\n')
			first = false
		}
		text.Wrap(p.b, p.width, "", fmt.Sprintf("%s [%s]", note, pairs))
	})
}

// addresses writes the unused addresses.
func (p *printer) addresses() {
	rows := [][]string{{"ADDRESS", "NOT USED BECAUSE", "PAIRS"}}
	group(p.x.Pairs, func(p assembly.Pair) (unused []string) {
		for _, u := range p.UnusedAddresses {
			unused = append(unused, columns(u.Name, u.Reason))
		}
		return unused
	}, func(address string, pairs pairs) {
		rows = append(rows, append(strings.Split(address, "\t"), pairs.String()))
	})
	text.Section(p.b, p.width, rows)
}

// tables writes the tables of communicators, and the number of pairs that were not used.
func (p *printer) tables() {
	pairs := 0
	for _, u := range p.x.UnusedProcs {
		pairs += u.ProcessCount
	}
	if pairs > 0 || len(p.x.CommTables) > 0 {
		p.b.WriteByte('\n')
	}
	if pairs > 0 {
		text.Wrap(p.b, p.width, "", fmt.Sprintf("%d other pairs on different nodes: not used", pairs))
	}
	for _, t := range p.x.CommTables {
		text.Wrap(p.b, p.width, "", t.String())
	}
}

// columns joins the cells of a row, which come from ranks, by tabs. Line ends and tabs in a cell are spaces.
func columns(cells ...string) string {
	for i, cell := range cells {
		cells[i] = strings.Join(strings.Fields(cell), " ")
	}
	return strings.Join(cells, "\t")
}

// group calls f for each text that describe returns, with the pairs that have it, in the order of the pairs.
func group(all []assembly.Pair, describe func(assembly.Pair) []string, f func(string, pairs)) {
	var texts []string
	described := map[string]pairs{}
	for _, p := range all {
		for _, text := range describe(p) {
			if described[text] == nil {
				texts = append(texts, text)
				described[text] = pairs{}
			}
			to := end{namespace: p.ToNamespace, rank: p.ToRank, streams: [2]int{p.FromStream, p.ToStream}}
			described[text][p.FromRank] = append(described[text][p.FromRank], to)
		}
	}
	for _, text := range texts {
		f(text, described[text])
	}
}

// withoutPorts removes the ports of addresses, which differ from pair to pair. The JSON of an explanation has them.
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
