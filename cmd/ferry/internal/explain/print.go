package explain

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"text/tabwriter"

	"github.com/ferrympi/ferry/cmd/ferry/internal/launch"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
)

// Print writes tables for people, without control characters of the ranks. Pairs that are alike stand there once.
func (e Explanation) Print(w io.Writer) error {
	var tables strings.Builder
	if err := e.printTables(&tables); err != nil {
		return err
	}
	_, err := io.WriteString(w, launch.Printable(tables.String(), "\n"))
	return err
}

func (e Explanation) printTables(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "PAIRS\tPML\tTRANSPORT\tDEVICE\tPROVIDER\tNOT USED")
	e.group(func(p mpi.Pair) []string {
		var not []string
		for _, r := range p.Rejected {
			not = append(not, r.Name+": "+r.Reason)
		}
		return []string{strings.Join([]string{p.PML, cmp.Or(p.Transport, "no transport"), cmp.Or(withoutPorts(p.Device), "-"),
			cmp.Or(p.Provider, "-"), cmp.Or(strings.Join(not, "; "), "-")}, "\t")}
	}, func(what string, pairs pairs) {
		for _, p := range pairs.blocks() {
			fmt.Fprintf(t, "%s\t%s\n", p, what)
		}
	})
	first := true
	e.group(func(p mpi.Pair) (notes []string) {
		for _, n := range p.Notes {
			notes = append(notes, withoutPorts(n))
		}
		return notes
	}, func(note string, pairs pairs) {
		if first {
			fmt.Fprintln(t)
			first = false
		}
		fmt.Fprintf(t, "%s [%s]\n", note, pairs)
	})
	e.printLearnt(t)
	first = true
	e.group(func(p mpi.Pair) (unused []string) {
		for _, u := range p.Unused {
			unused = append(unused, u.Name+"\t"+u.Reason)
		}
		return unused
	}, func(address string, pairs pairs) {
		if first {
			fmt.Fprintln(t, "\nADDRESS\tNOT USED BECAUSE\tPAIRS")
			first = false
		}
		fmt.Fprintf(t, "%s\t%s\n", address, pairs)
	})
	fmt.Fprintln(t, "\nFRAMEWORK\tCOMPONENT\tVERDICT\tREASON")
	for _, c := range e.Components {
		verdict, reason := c.Verdict, c.Reason
		if c.Hint != "" {
			reason += " (" + c.Hint + ")"
		}
		if c.Used != nil && !*c.Used {
			verdict, reason = "not used", "it is open, and carries no messages between these ranks"
		}
		if c.Ranks != nil {
			reason = strings.TrimSpace(fmt.Sprintf("%s [ranks %s]", reason, Numbers(c.Ranks)))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", c.Framework, c.Name, verdict, cmp.Or(reason, "-"))
	}
	if len(e.Requirements) > 0 {
		fmt.Fprintln(t)
	}
	for _, n := range e.Requirements {
		fmt.Fprintln(t, n)
	}
	e.printCollectives(t)
	return t.Flush()
}

// printLearnt writes what ranks have learnt of large messages.
func (e Explanation) printLearnt(w io.Writer) {
	first := true
	for _, p := range e.Pairs {
		for _, l := range p.Learnt {
			if first {
				fmt.Fprintln(w, "\nFROM\tTO\tMESSAGES\tUSED\tGB/S\tOTHERS (GB/S, MESSAGES)\tTRIES")
				first = false
			}
			used, speed := "-", "-"
			var others []string
			for _, way := range l.Ways {
				if way.Used {
					used, speed = way.Way, fmt.Sprintf("%.1f", way.GBs)
				} else {
					others = append(others, fmt.Sprintf("%s %.1f, %d", way.Way, way.GBs, way.Messages))
				}
			}
			from := fmt.Sprint(p.To)
			if p.Namespace != "" {
				from = p.Namespace + ":" + from
			}
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%d\n", from, p.From, l.Kind(), used, speed, cmp.Or(strings.Join(others, "; "), "-"), l.Tries)
		}
	}
}

// printCollectives writes a table for each number of members.
func (e Explanation) printCollectives(w io.Writer) {
	members := 0
	for _, c := range e.Collectives {
		if c.Members != members {
			members = c.Members
			fmt.Fprintf(w, "\nCollectives of %d ranks\nOPERATION\tFROM SIZE\tCOMPONENT\tALGORITHM\n", members)
		}
		fmt.Fprintf(w, "%s\t%v\t%s\t%s\n", c.Operation, framework.Size(c.From), c.Component, c.Algorithm)
	}
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
			to := end{p.Namespace, p.To}
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
