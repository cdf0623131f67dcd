package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// module is cut from the paths of packages where the test's name matters more.
const module = "github.com/ferrympi/ferry/"

// report is what the events have told so far.
type report struct {
	out     io.Writer
	slowest int // packages of the closing lines; 0: all
	began   time.Time

	suite    string
	open     map[string]*pack
	builds   map[string]string // output of builds that go on, by package
	packages []line
	failures []failure
	skips    map[string][]skipped // by reason
	passed   int                  // tests
}

// line is the closing line of a package, in go test's own words.
type line struct {
	text    string
	ok      bool
	seconds float64
}

type failure struct{ title, text string }

type skipped struct{ path, test string }

func newReport(out io.Writer, slowest int) *report {
	return &report{out: out, slowest: slowest, began: time.Now(), open: map[string]*pack{}, builds: map[string]string{}, skips: map[string][]skipped{}}
}

func (r *report) failed() bool { return len(r.failures) > 0 }

func (r *report) skip(reason, path, test string) {
	r.skips[reason] = append(r.skips[reason], skipped{path, test})
}

// endPackage prints the package's line, and keeps the output of what failed.
func (r *report) endPackage(p *pack, action string, seconds float64) {
	delete(r.open, p.path)
	text, rest := p.closing()
	if action == "skip" { // no test files
		return
	}
	if action == "pass" {
		fmt.Fprintln(r.out, text)
		r.packages = append(r.packages, line{text, true, seconds})
		return
	}
	names, output := p.failed()
	fmt.Fprintln(r.out, text)
	for _, name := range names {
		fmt.Fprintf(r.out, "     %s\n", name)
	}
	r.packages = append(r.packages, line{text, false, seconds})
	if !p.unbuilt {
		r.failures = append(r.failures, failure{title: p.title(), text: output + rest})
	}
}

// title names the package, and the suite if it has a name.
func (p *pack) title() string {
	if p.suite == "" {
		return p.path
	}
	return p.path + " (" + p.suite + ")"
}

// closing splits the package's output into go test's line about it and the rest.
func (p *pack) closing() (text, rest string) {
	for _, l := range p.output {
		trimmed := strings.TrimRight(l, "\n")
		switch {
		case strings.HasPrefix(l, "ok  \t"), strings.HasPrefix(l, "FAIL\t"):
			text = trimmed
		case trimmed != "PASS" && trimmed != "FAIL":
			rest += l
		}
	}
	return cmp.Or(text, "FAIL\t"+p.path), rest
}

// failed returns the tests that failed, or ran when the package ended, and their output.
func (p *pack) failed() (names []string, output string) {
	var b strings.Builder
	for _, name := range p.order {
		t := p.tests[name]
		if t.action != "fail" && t.action != "run" {
			continue
		}
		label := name
		if t.action == "run" {
			label += " (did not end)"
		}
		names = append(names, label)
		for _, l := range t.output {
			if !strings.HasPrefix(l, "=== ") {
				b.WriteString(l)
			}
		}
	}
	return names, b.String()
}

// endSuite closes packages that go test began and did not end: it was killed.
func (r *report) endSuite() {
	for _, path := range slices.Sorted(maps.Keys(r.open)) {
		p := r.open[path]
		p.output = append(p.output, "FAIL\t"+path+"\t[did not end]\n")
		r.endPackage(p, "fail", 0)
	}
}

// summarize prints the failures, the skipped tests and the closing lines.
func (r *report) summarize() {
	r.endSuite()
	for _, f := range r.failures {
		fmt.Fprintf(r.out, "\nFAILED: %s\n%s", f.title, f.text)
		if !strings.HasSuffix(f.text, "\n") {
			fmt.Fprintln(r.out)
		}
	}
	r.printSkips()
	skips := 0
	for _, s := range r.skips {
		skips += len(s)
	}
	fmt.Fprintf(r.out, "\nIn %v: packages %d, tests passed %d, skipped %d, failures %d\n",
		time.Since(r.began).Round(time.Second), len(r.packages), r.passed, skips, len(r.failures))
	for _, l := range r.closing() {
		fmt.Fprintln(r.out, l.text)
	}
}

// namesPerReason is how many skipped tests the summary names for each reason.
const namesPerReason = 3

// printSkips lists the reasons, the most frequent first.
func (r *report) printSkips() {
	if len(r.skips) == 0 {
		return
	}
	fmt.Fprintln(r.out, "\nSKIPPED:")
	reasons := slices.SortedFunc(maps.Keys(r.skips), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(r.skips[b]), len(r.skips[a])), cmp.Compare(a, b))
	})
	for _, reason := range reasons {
		all := r.skips[reason]
		fmt.Fprintf(r.out, "%5d  %s\n", len(all), reason)
		for _, s := range all[:min(len(all), namesPerReason)] {
			if name := strings.TrimSpace(strings.TrimPrefix(s.path, module) + " " + s.test); name != "" {
				fmt.Fprintf(r.out, "       %s\n", name)
			}
		}
		if more := len(all) - namesPerReason; more > 0 {
			fmt.Fprintf(r.out, "       and %d more\n", more)
		}
	}
}

// closing returns the lines of the packages, what failed and then what took longest at the
// end, where a reader looks first.
func (r *report) closing() []line {
	all := slices.SortedStableFunc(slices.Values(r.packages), func(a, b line) int {
		switch {
		case a.ok != b.ok && a.ok:
			return -1
		case a.ok != b.ok:
			return 1
		}
		return cmp.Compare(a.seconds, b.seconds)
	})
	if r.slowest > 0 && len(all) > r.slowest {
		all = all[len(all)-r.slowest:]
	}
	return all
}
