package tune

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/ferrympi/ferry/config/tuned"
	"github.com/ferrympi/ferry/internal/hop"
)

// table is one contest of paths, size by size.
type table struct {
	title    string
	allocMem bool
	c        *contest
	paths    []string // by arm
	search   *search
	shared   string // of collectives: the parameter that is the largest size of the first arm
}

// shown keeps a contest as a table. paths are those of its arms; it may have fewer.
func (s *search) shown(c *contest, title string, allocMem bool, paths ...string) {
	s.tables = append(s.tables, table{title: title, allocMem: allocMem, c: c, paths: paths[:len(c.arms)], search: s})
}

// crowd reports whether more ranks than processors took part.
func (t table) crowd() bool { return t.c.arms[0].loads[0].ranks > processors }

// taken is the path that messages of a size go, or collectives.
func (t table) taken(size int) string {
	switch {
	case t.shared == "":
		return t.search.path(size, t.allocMem)
	case size <= t.search.size(t.shared):
		return t.paths[0]
	}
	return t.paths[1]
}

// Figure is what one path gave for messages of one size.
type Figure struct {
	Ranks     int     `json:"ranks"`
	Memory    string  `json:"memory"` // "ordinary" or "AllocMem"
	Size      int     `json:"size"`
	Path      string  `json:"path"`                     // "eager" or "offered", of AllocMem "frames" or "memory"; of collectives "area" or "messages"
	Latency   float64 `json:"latency_us,omitempty"`     // one way
	Bandwidth float64 `json:"bandwidth_mbps,omitempty"` // 10^6 bytes per second, of all pairs
	Bcast     float64 `json:"bcast_us,omitempty"`       // of collectives, in place of the two
	Allreduce float64 `json:"allreduce_us,omitempty"`
	// State is that of both figures, of the one that was near less often.
	State hop.State `json:"state"`
	Taken bool      `json:"taken"` // by the values in use
}

// Evidence is what the values stand on.
type Evidence struct {
	RawHop   float64  `json:"raw_hop_ns"` // the best (hop.Best); samples beyond 1.5 times it are far
	Samples  int      `json:"samples"`
	Counted  int      `json:"counted"` // of them
	Figures  []Figure `json:"figures"`
	Trials   []trial  `json:"trials"`
	Together []sum    `json:"together,omitempty"`
}

// figure is what the path of an arm gave for messages of a size; without a
// measurement it is 0.
func (t table) figure(arm, size int) Figure {
	f := Figure{Ranks: processors, Memory: "ordinary", Size: size, Path: t.paths[arm], Taken: t.taken(size) == t.paths[arm]}
	if t.allocMem {
		f.Memory = "AllocMem"
	}
	if t.crowd() {
		f.Ranks = crowdRanks
	}
	var other hop.State
	if t.shared != "" {
		f.Bcast, f.State = t.c.figure(arm, point{"bcast", size})
		f.Allreduce, other = t.c.figure(arm, point{"allreduce", size})
		f.State = worse(f.State, other)
		return f
	}
	f.Latency, f.State = t.c.figure(arm, point{"latency", size})
	f.Bandwidth, other = t.c.figure(arm, point{"bw", size})
	f.State = worse(f.State, other)
	return f
}

// worse is the state of a row that has two.
func worse(a, b hop.State) hop.State {
	for _, s := range []hop.State{hop.Far, hop.Few} {
		if a == s || b == s {
			return s
		}
	}
	return hop.Near
}

// print writes the table for people.
func (t table) print(w io.Writer) {
	fmt.Fprintf(w, "%s\nSIZE", t.title)
	for _, path := range t.paths {
		if t.shared != "" {
			fmt.Fprintf(w, "\t%s: bcast us\tallreduce us", path)
		} else {
			fmt.Fprintf(w, "\t%s us\tGB/s", path)
		}
	}
	fmt.Fprintln(w, "\tSTATE\tTAKEN")
	for _, size := range sizesOf(t.c, 0, 0, 0) {
		fmt.Fprint(w, text(size))
		state := hop.Near
		for arm := range t.paths {
			f := t.figure(arm, size)
			state = worse(state, f.State)
			if t.shared != "" {
				fmt.Fprintf(w, "\t%s\t%s", number(f.Bcast, 2), number(f.Allreduce, 2))
			} else {
				fmt.Fprintf(w, "\t%s\t%s", number(f.Latency, 2), number(f.Bandwidth/1000, 1))
			}
		}
		fmt.Fprintf(w, "\t%s\t%s\n", state, t.taken(size))
	}
	fmt.Fprintln(w)
}

// number is a figure, or "-" for none.
func number(v float64, digits int) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.*f", digits, v)
}

func percent(part float64) string { return fmt.Sprintf("%+.1f %%", 100*part) }

// params are what is kept of the search.
func (s *search) params() []tuned.Param {
	var out []tuned.Param
	for _, name := range names {
		p := tuned.Param{Name: name, Default: s.defaults[name], Value: s.best[name]}
		if p.Value != p.Default {
			// Of several steps each was measured beside the one before.
			whole := 1.0
			for _, t := range s.trials {
				if t.Param == name && t.Taken {
					whole *= 1 + t.Gain
				}
			}
			p.Gain = whole - 1
		}
		out = append(out, p)
	}
	return out
}

// evidence is what the file keeps beside the values.
func (s *search) evidence() (json.RawMessage, error) {
	e := Evidence{RawHop: s.bestHop.NS(), Samples: s.samples, Counted: s.counted, Trials: s.trials, Together: s.sums, Figures: []Figure{}}
	for _, t := range s.tables {
		for _, size := range sizesOf(t.c, 0, 0, 0) {
			for arm := range t.paths {
				if f := t.figure(arm, size); f.Latency+f.Bandwidth+f.Bcast+f.Allreduce > 0 {
					e.Figures = append(e.Figures, f)
				}
			}
		}
	}
	return json.Marshal(e)
}

// print writes all for people.
func (s *search) print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, t := range s.tables {
		t.print(tw)
	}
	fmt.Fprintln(tw, "PARAMETER\tTRIED\tBESIDE\tBETTER BY\tNEEDED\tTAKEN")
	for _, t := range s.trials {
		taken := "no"
		switch {
		case t.Taken:
			taken = "yes"
		case t.Why != "":
			taken = "no: " + t.Why
		}
		gain, needed := percent(t.Gain), percent(t.Needed)
		if t.Needed == 0 { // too few samples to tell
			gain, needed = "-", "-"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\n", t.Param, cmp.Or(t.Value, "-"), t.Beside, gain, needed, taken)
	}
	if len(s.sums) > 0 {
		fmt.Fprintln(tw, "\nALL TOGETHER\tBETTER BY\tNOISE")
		for _, x := range s.sums {
			fmt.Fprintf(tw, "%s\t%s\t%s\n", x.What, percent(x.Gain), percent(x.Needed))
		}
	}
	fmt.Fprintln(tw, "\nPARAMETER\tVALUE\tDEFAULT")
	for _, p := range s.params() {
		fmt.Fprintf(tw, "%s\t%s\t%s\n", p.Name, p.Value, p.Default)
	}
	return tw.Flush()
}
