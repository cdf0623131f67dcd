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
	// Packages in the closing lines, 0 for all.
	slowestCount int
	startedAt    time.Time

	suite           string
	runningPackages map[string]*packageRun
	// Output of running builds by package.
	buildOutputs  map[string]string
	packageLines  []packageLine
	failures      []failure
	skipsByReason map[string][]skipped
	passedTests   int
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
	return &report{out: out, slowestCount: slowest, startedAt: time.Now(), runningPackages: map[string]*packageRun{}, buildOutputs: map[string]string{}, skipsByReason: map[string][]skipped{}}
}

func (r *report) hasFailures() bool { return len(r.failures) > 0 }

func (r *report) skip(reason, path, test string) {
	r.skipsByReason[reason] = append(r.skipsByReason[reason], skipped{path, test})
}

// endPackage prints the line of the package and records the output of failed tests.
func (r *report) endPackage(p *packageRun, action string, seconds float64) {
	delete(r.runningPackages, p.importPath)
	text, rest := p.splitOutput()
	if action == "skip" { // The package has no test files.
		return
	}
	if action == "pass" {
		fmt.Fprintln(r.out, text)
		r.packageLines = append(r.packageLines, packageLine{text, true, seconds})
		return
	}
	names, output := p.failedTests()
	fmt.Fprintln(r.out, text)
	for _, name := range names {
		fmt.Fprintf(r.out, "     %s\n", name)
	}
	r.packageLines = append(r.packageLines, packageLine{text, false, seconds})
	if !p.isBuildFailure {
		r.failures = append(r.failures, failure{title: p.title(), text: output + rest})
	}
}

// title returns the package with its suite, if any.
func (p *packageRun) title() string {
	if p.suite == "" {
		return p.importPath
	}
	return p.importPath + " (" + p.suite + ")"
}

// splitOutput separates go test's line about the package from the rest of its output.
func (p *packageRun) splitOutput() (text, rest string) {
	for _, l := range p.packageOutput {
		trimmed := strings.TrimRight(l, "\n")
		switch {
		case strings.HasPrefix(l, "ok  \t"), strings.HasPrefix(l, "FAIL\t"):
			text = trimmed
		case trimmed != "PASS" && trimmed != "FAIL":
			rest += l
		}
	}
	return cmp.Or(text, "FAIL\t"+p.importPath), rest
}

// failedTests returns the tests that failed or were running at the end of the package, and their
// output.
func (p *packageRun) failedTests() (names []string, output string) {
	var b strings.Builder
	for _, name := range p.testOrder {
		t := p.testsByName[name]
		if t.lastAction != "fail" && t.lastAction != "run" {
			continue
		}
		label := name
		if t.lastAction == "run" {
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
	for _, path := range slices.Sorted(maps.Keys(r.runningPackages)) {
		p := r.runningPackages[path]
		p.packageOutput = append(p.packageOutput, "FAIL\t"+path+"\t[did not end]\n")
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
	for _, s := range r.skipsByReason {
		skips += len(s)
	}
	fmt.Fprintf(r.out, "\nIn %v: packages %d, tests passed %d, skipped %d, failures %d\n",
		time.Since(r.startedAt).Round(time.Second), len(r.packageLines), r.passedTests, skips, len(r.failures))
	for _, l := range r.closing() {
		fmt.Fprintln(r.out, l.text)
	}
}

// namesPerReason is how many skipped tests the summary names for each reason.
const namesPerReason = 3

// printSkips lists the reasons, the most frequent first.
func (r *report) printSkips() {
	if len(r.skipsByReason) == 0 {
		return
	}
	fmt.Fprintln(r.out, "\nSKIPPED:")
	reasons := slices.SortedFunc(maps.Keys(r.skipsByReason), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(r.skipsByReason[b]), len(r.skipsByReason[a])), cmp.Compare(a, b))
	})
	for _, reason := range reasons {
		all := r.skipsByReason[reason]
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
	all := slices.SortedStableFunc(slices.Values(r.packageLines), func(a, b packageLine) int {
		switch {
		case a.isPass != b.isPass && a.isPass:
			return -1
		case a.isPass != b.isPass:
			return 1
		}
		return cmp.Compare(a.seconds, b.seconds)
	})
	if r.slowestCount > 0 && len(all) > r.slowestCount {
		all = all[len(all)-r.slowestCount:]
	}
	return all
}
