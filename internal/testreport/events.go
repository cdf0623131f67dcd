package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// event is one line of go test -json (go doc test2json), or one of scripts/test: the action
// "suite" begins a part of the run, and "skip-suite" gives the reason why there is none.
type event struct {
	Action     string
	Package    string
	ImportPath string // of build-output and build-fail
	Test       string
	Output     string
	Elapsed    float64 // s
	// FailedBuild is the ImportPath of the build that failed, where a package did not start.
	FailedBuild string
}

// read handles events until the input ends. Other lines are printed as they are.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if text := bytes.TrimSpace(line); len(text) > 0 {
			var e event
			if text[0] != '{' || json.Unmarshal(text, &e) != nil || e.Action == "" {
				fmt.Fprintf(r.out, "%s\n", text)
			} else {
				r.handle(e)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("standard input: %w", err)
		}
	}
}

// A pack is a package of a suite whose tests have begun.
type pack struct {
	suite, path string
	tests       map[string]*test
	order       []string // of tests, as they began
	output      []string // of no test
	unbuilt     bool     // the failure of its build is in the report
}

type test struct {
	action string // the last: run, pass, fail or skip
	output []string
}

func (r *report) handle(e event) {
	switch e.Action {
	case "suite":
		r.endSuite()
		r.suite = e.Output
		fmt.Fprintf(r.out, "\n# %s\n", e.Output)
		return
	case "skip-suite":
		r.skip(e.Output, e.Package, "")
		return
	case "build-output":
		r.builds[e.ImportPath] += e.Output
		return
	case "build-fail":
		r.failures = append(r.failures, failure{title: "build of " + e.ImportPath, text: r.builds[e.ImportPath]})
		delete(r.builds, e.ImportPath)
		return
	}
	if e.Package == "" {
		return
	}
	p := r.open[e.Package]
	if p == nil {
		p = &pack{suite: r.suite, path: e.Package, tests: map[string]*test{}}
		r.open[e.Package] = p
	}
	if e.Test == "" {
		r.handlePackage(p, e)
		return
	}
	t := p.tests[e.Test]
	if t == nil {
		t = &test{action: "run"}
		p.tests[e.Test] = t
		p.order = append(p.order, e.Test)
	}
	switch e.Action {
	case "output":
		t.output = append(t.output, e.Output)
	case "pass":
		r.passed++
		t.action, t.output = e.Action, nil
	case "skip":
		r.skip(reason(t.output), p.path, e.Test)
		t.action, t.output = e.Action, nil
	case "fail":
		t.action = e.Action
	}
}

// handlePackage handles an event of no test.
func (r *report) handlePackage(p *pack, e event) {
	switch e.Action {
	case "output":
		p.output = append(p.output, e.Output)
	case "pass", "fail", "skip":
		p.unbuilt = e.FailedBuild != ""
		r.endPackage(p, e.Action, e.Elapsed)
	}
}

var (
	position = regexp.MustCompile(`^ +\S+\.go:\d+: `)
	marker   = regexp.MustCompile(`^ *(===|---) `)
)

// notApplicable is the text of kittest.ErrSkip. Each such case has a reason of its own, and
// nothing on the machine would change it.
const notApplicable = "not applicable"

// reason returns the text of a test's last message, without its position in the source.
func reason(output []string) string {
	var text string
	for _, line := range output {
		switch {
		case marker.MatchString(line):
		case position.MatchString(line):
			text = position.ReplaceAllString(line, "")
		default:
			text += line
		}
	}
	text = strings.Join(strings.Fields(text), " ")
	switch {
	case text == "":
		return "without a reason"
	case strings.Contains(text, notApplicable):
		return "cases of kits that are not applicable to the component"
	}
	return text
}
