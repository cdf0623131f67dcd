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

// module is the prefix that is removed from the paths of packages in the report.
const module = "github.com/ferrympi/ferry/"

// report has the state of the report.
type report struct {
	out io.Writer
	// Number of packages in the closing lines, 0 for all.
	slowest   int
	startedAt time.Time

	suite   string
	running map[string]*packageRun
	// Output of running builds by package.
	builds   map[string]string
	packages []packageLine
	failures []failure
	// By reason.
	skips map[string][]skipped
	// Number of passed tests.
	passed int
}

// packageLine is the closing line of a package in go test's format.
type packageLine struct {
	text    string
	isPass  bool
	seconds float64
}

type failure struct{ title, text string }

type skipped struct{ path, test string }

func newReport(out io.Writer, slowest int) *report {
	return &report{out: out, slowest: slowest, startedAt: time.Now(), running: map[string]*packageRun{}, builds: map[string]string{}, skips: map[string][]skipped{}}
}

func (r *report) hasFailures() bool { return len(r.failures) > 0 }

func (r *report) skip(reason, path, test string) {
	r.skips[reason] = append(r.skips[reason], skipped{path, test})
}

// endPackage prints the line of the package and records the output of failed tests.
func (r *report) endPackage(p *packageRun, action string, seconds float64) {
	delete(r.running, p.path)
	text, rest := p.splitOutput()
	if action == "skip" { // The package has no test files.
		return
	}
	if action == "pass" {
		fmt.Fprintln(r.out, text)
		r.packages = append(r.packages, packageLine{text, true, seconds})
		return
	}
	names, output := p.failedTests()
	fmt.Fprintln(r.out, text)
	for _, name := range names {
		fmt.Fprintf(r.out, "     %s\n", name)
	}
	r.packages = append(r.packages, packageLine{text, false, seconds})
	if !p.isBuildFailure {
		r.failures = append(r.failures, failure{title: p.title(), text: output + rest})
	}
}

// title returns the package with its suite, if any.
func (p *packageRun) title() string {
	if p.suite == "" {
		return p.path
	}
	return p.path + " (" + p.suite + ")"
}

// splitOutput separates go test's line about the package from the rest of its output.
func (p *packageRun) splitOutput() (text, rest string) {
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

// failedTests returns the tests that failed or were running at the end of the package, and their
// output.
func (p *packageRun) failedTests() (names []string, output string) {
	var b strings.Builder
	for _, name := range p.testOrder {
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

// endSuite closes packages that a killed go test did not end.
func (r *report) endSuite() {
	for _, path := range slices.Sorted(maps.Keys(r.running)) {
		p := r.running[path]
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
		time.Since(r.startedAt).Round(time.Second), len(r.packages), r.passed, skips, len(r.failures))
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

// closing returns the lines of the packages. Failures and then the slowest packages are at the end.
func (r *report) closing() []packageLine {
	all := slices.SortedStableFunc(slices.Values(r.packages), func(a, b packageLine) int {
		switch {
		case a.isPass != b.isPass && a.isPass:
			return -1
		case a.isPass != b.isPass:
			return 1
		}
		return cmp.Compare(a.seconds, b.seconds)
	})
	if r.slowest > 0 && len(all) > r.slowest {
		all = all[len(all)-r.slowest:]
	}
	return all
}
