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

// event is one line of go test -json (go doc test2json) or of scripts/test. The latter has action
// "suite" at the start of a part of the run, and "skip-suite" with the reason for a skipped part.
type event struct {
	Action  string
	Package string
	// Set for build-output and build-fail.
	ImportPath string
	Test       string
	Output     string
	// In seconds.
	Elapsed float64
	// FailedBuild is the ImportPath of the failed build of a package that did not start.
	FailedBuild string
}

// readEvents handles events until the end of the input. It prints other lines unchanged.
func (r *report) readEvents(in io.Reader) error {
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

// A packageRun is a package of a suite whose tests have started.
type packageRun struct {
	suite, importPath string
	testsByName       map[string]*testRun
	// Names of the tests in the order of their start.
	testOrder []string
	// Outside of tests.
	packageOutput []string
	// Whether its build has failed, which the report contains already.
	isBuildFailure bool
}

type testRun struct {
	// run, pass, fail or skip.
	lastAction string
	output     []string
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
		r.buildOutputs[e.ImportPath] += e.Output
		return
	case "build-fail":
		r.failures = append(r.failures, failure{title: "build of " + e.ImportPath, text: r.buildOutputs[e.ImportPath]})
		delete(r.buildOutputs, e.ImportPath)
		return
	}
	if e.Package == "" {
		return
	}
	p := r.runningPackages[e.Package]
	if p == nil {
		p = &packageRun{suite: r.suite, importPath: e.Package, testsByName: map[string]*testRun{}}
		r.runningPackages[e.Package] = p
	}
	if e.Test == "" {
		r.handlePackage(p, e)
		return
	}
	t := p.testsByName[e.Test]
	if t == nil {
		t = &testRun{lastAction: "run"}
		p.testsByName[e.Test] = t
		p.testOrder = append(p.testOrder, e.Test)
	}
	switch e.Action {
	case "output":
		t.output = append(t.output, e.Output)
	case "pass":
		r.passedTests++
		t.lastAction, t.output = e.Action, nil
	case "skip":
		r.skip(reason(t.output), p.importPath, e.Test)
		t.lastAction, t.output = e.Action, nil
	case "fail":
		t.lastAction = e.Action
	}
}

// handlePackage handles an event outside of tests.
func (r *report) handlePackage(p *packageRun, e event) {
	switch e.Action {
	case "output":
		p.packageOutput = append(p.packageOutput, e.Output)
	case "pass", "fail", "skip":
		p.isBuildFailure = e.FailedBuild != ""
		r.endPackage(p, e.Action, e.Elapsed)
	}
}

var (
	position = regexp.MustCompile(`^ +\S+\.go:\d+: `)
	marker   = regexp.MustCompile(`^ *(===|---) `)
)

// notApplicable is the text of kittest.ErrSkip. Such cases have individual reasons, which are
// independent of the machine.
const notApplicable = "not applicable"

// reason returns the text of the last message of a test without its position in the source.
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
