package report

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"regexp"
	"slices"
	"testing"
)

// element is any XML element.
type element struct {
	XMLName  xml.Name
	Attrs    []xml.Attr `xml:",any,attr"`
	Children []element  `xml:",any"`
}

func (e element) attr(name string) string {
	for _, a := range e.Attrs {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// junitRules are the rules of junit-10.xsd: required and optional attributes of elements, and their
// children, with the order if it is fixed.
var junitRules = map[string]struct {
	must, may, children []string
}{
	"testsuites": {may: []string{"name", "time", "tests", "failures", "errors"}, children: []string{"testsuite"}},
	"testsuite": {must: []string{"name", "tests"}, may: []string{"failures", "errors", "time", "skipped", "timestamp", "hostname", "id"},
		children: []string{"properties", "testcase", "system-out", "system-err"}},
	"properties": {children: []string{"property"}},
	"property":   {must: []string{"name", "value"}},
	"testcase":   {must: []string{"name"}, may: []string{"time", "classname"}, children: []string{"skipped", "error", "failure", "system-out", "system-err"}},
	"skipped":    {must: []string{"message"}},
	"error":      {must: []string{"message", "type"}},
	"failure":    {must: []string{"message", "type"}},
	"system-out": {},
}

func checkJUnit(e element) error {
	rule, ok := junitRules[e.XMLName.Local]
	if !ok {
		return fmt.Errorf("element %s is unknown", e.XMLName.Local)
	}
	for _, a := range e.Attrs {
		if !slices.Contains(slices.Concat(rule.must, rule.may), a.Name.Local) {
			return fmt.Errorf("%s has an attribute %s", e.XMLName.Local, a.Name.Local)
		}
	}
	for _, name := range rule.must {
		if e.attr(name) == "" {
			return fmt.Errorf("%s has no %s", e.XMLName.Local, name)
		}
	}
	last := 0
	for _, c := range e.Children {
		at := slices.Index(rule.children, c.XMLName.Local)
		if at < last {
			return fmt.Errorf("%s stands at the wrong place in %s", c.XMLName.Local, e.XMLName.Local)
		}
		last = at
		if err := checkJUnit(c); err != nil {
			return err
		}
	}
	return nil
}

func TestWriteJUnit_EveryOutcome_FitsSchemaAndCounts(t *testing.T) {
	stamp := regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$`)
	for name, r := range outcomes(t) {
		var b bytes.Buffer
		if err := WriteJUnit(&b, r); err != nil {
			t.Fatal(err)
		}
		golden(t, name+".xml", b.Bytes())
		var root element
		if err := xml.Unmarshal(b.Bytes(), &root); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := checkJUnit(root); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var all [3]int
		for _, suite := range root.Children {
			counts := map[string]int{}
			for _, c := range suite.Children {
				if c.XMLName.Local != "testcase" {
					continue
				}
				counts["tests"]++
				for _, outcome := range c.Children {
					counts[outcome.XMLName.Local]++
				}
			}
			for attr, n := range map[string]int{"tests": counts["tests"], "failures": counts["failure"], "errors": counts["error"], "skipped": counts["skipped"]} {
				if cmp.Or(suite.attr(attr), "0") != fmt.Sprint(n) {
					t.Errorf("%s: suite %s says %s %s, there are %d", name, suite.attr("name"), suite.attr(attr), attr, n)
				}
			}
			all[0] += counts["tests"]
			all[1] += counts["failure"]
			all[2] += counts["error"]
			if !stamp.MatchString(suite.attr("timestamp")) {
				t.Errorf("%s: timestamp %q", name, suite.attr("timestamp"))
			}
		}
		if got := fmt.Sprint(root.attr("tests"), " ", cmp.Or(root.attr("failures"), "0"), " ", cmp.Or(root.attr("errors"), "0")); got != fmt.Sprint(all[0], all[1], all[2]) || all[0] != len(r.Rows) {
			t.Errorf("%s: in all %s, counted %v, rows %d", name, got, all, len(r.Rows))
		}
	}
}
