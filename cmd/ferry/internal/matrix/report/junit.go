package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// The elements of a JUnit report, as Jenkins and GitLab read them
// (junit-10.xsd of Jenkins' xUnit plugin).
type (
	junitReport struct {
		XMLName xml.Name `xml:"testsuites"`
		Name    string   `xml:"name,attr"`
		junitCounts
		Suites []junitSuite `xml:"testsuite"`
	}
	junitCounts struct {
		Tests    int    `xml:"tests,attr"`
		Failures int    `xml:"failures,attr"`
		Errors   int    `xml:"errors,attr"`
		Time     string `xml:"time,attr"` // seconds
	}
	junitSuite struct {
		Name string `xml:"name,attr"`
		junitCounts
		Skipped    int             `xml:"skipped,attr"`
		Timestamp  string          `xml:"timestamp,attr"`
		Host       string          `xml:"hostname,attr"`
		Properties []junitProperty `xml:"properties>property"`
		Cases      []junitCase     `xml:"testcase"`
	}
	junitProperty struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitCase struct {
		Name    string       `xml:"name,attr"`
		Class   string       `xml:"classname,attr"`
		Time    string       `xml:"time,attr"`
		Skipped *junitReason `xml:"skipped"`
		Error   *junitReason `xml:"error"`
		Failure *junitReason `xml:"failure"`
		Output  string       `xml:"system-out,omitempty"`
	}
	junitReason struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr,omitempty"`
		Text    string `xml:",chardata"`
	}
)

// WriteJUnit writes the report for tools that show tests: a suite for each stack,
// with the library versions as properties. What failed is a failure; what did not
// end, or was not run because its stack was given up, an error; and all else that was
// skipped or is not available is skipped with its reason.
func WriteJUnit(w io.Writer, r *Report) error {
	out := junitReport{Name: "ferry matrix"}
	for _, line := range r.Table().Lines {
		suite := r.junitSuite(line.Stack)
		seconds := 0.0
		for _, row := range r.Rows {
			if row.Stack != line.Stack.Name {
				continue
			}
			c := junitOf(row)
			suite.Cases = append(suite.Cases, c)
			suite.Tests++
			seconds += row.Seconds
			switch {
			case c.Failure != nil:
				suite.Failures++
			case c.Error != nil:
				suite.Errors++
			case c.Skipped != nil:
				suite.Skipped++
			}
		}
		suite.Time = junitSeconds(seconds)
		out.Tests += suite.Tests
		out.Failures += suite.Failures
		out.Errors += suite.Errors
		out.Suites = append(out.Suites, suite)
	}
	out.Time = junitSeconds(r.Seconds)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", " ")
	if err := e.Encode(out); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// junitSuite is a stack without its cases.
func (r *Report) junitSuite(s Stack) junitSuite {
	suite := junitSuite{
		Name:      oneLine(s.Name),
		Timestamp: r.Started.UTC().Format("2006-01-02T15:04:05"),
		Host:      oneLine(r.Machine.Host),
	}
	add := func(name, value string) {
		if value != "" {
			suite.Properties = append(suite.Properties, junitProperty{name, oneLine(value)})
		}
	}
	add("suite", r.Suite)
	add("partial", r.Partial)
	add("ferry", r.Machine.Ferry)
	for _, l := range r.Machine.Libraries {
		add(oneLine(l.Name), l.Version)
	}
	add("kernel", r.Machine.Kernel)
	add("cpu", r.Machine.CPU)
	add("provider", s.Provider)
	add("device", s.Device)
	add("library", s.Library)
	add("settings", strings.Join(s.Set, " "))
	return suite
}

// junitOf is one row.
func junitOf(row Row) junitCase {
	c := junitCase{Name: oneLine(row.Case), Class: oneLine(row.Stack), Time: junitSeconds(row.Seconds)}
	because := func(text string) *junitReason {
		why := &junitReason{Message: oneLine(row.Reason), Type: string(row.Status), Text: Printable(text)}
		if row.GivenUp {
			why.Type = "given up"
		}
		return why
	}
	long := row.Reason
	if row.Command != "" {
		long += "\n\nto repeat it: " + row.Command
	}
	switch {
	case row.Status == Fail:
		c.Failure = because(long)
	case row.Status == Timeout, row.GivenUp:
		c.Error = because(long)
	case row.Status != Pass:
		c.Skipped = &junitReason{Message: oneLine(row.Reason)}
	}
	var output strings.Builder
	if row.Status == Pass && row.Excluded != "" {
		fmt.Fprintf(&output, "excluded, but passes: %s\n", row.Excluded)
	}
	for _, p := range row.Points {
		fmt.Fprintf(&output, "%10d B  %14.3f %s\n", p.Size, p.Value, p.Unit)
	}
	output.WriteString(row.Output)
	c.Output = Printable(output.String())
	return c
}

func junitSeconds(s float64) string { return fmt.Sprintf("%.3f", s) }
