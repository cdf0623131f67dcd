package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/jstemmer/go-junit-report/v2/junit"
)

// WriteJUnit writes the report for tools that show tests: a suite for each stack,
// with the library versions as properties. What failed is a failure; what did not
// end, or was not run because its stack was given up, an error; and all else that was
// skipped or is not available is skipped with its reason.
func WriteJUnit(w io.Writer, r *Report) error {
	out := junit.Testsuites{Name: "ferry matrix", Time: seconds(r.Seconds)}
	for _, line := range r.Table().Lines {
		s := line.Stack
		suite := junit.Testsuite{
			Name: oneLine(s.Name), Hostname: oneLine(r.Machine.Host), ID: len(out.Suites),
			Timestamp: r.Started.UTC().Format("2006-01-02T15:04:05"), // without a zone, as junit-10.xsd has it
		}
		properties := [][2]string{{"suite", r.Suite}, {"partial", r.Partial}, {"ferry", r.Machine.Ferry}}
		for _, l := range r.Machine.Libraries {
			properties = append(properties, [2]string{l.Name, l.Version})
		}
		properties = append(properties, [2]string{"kernel", r.Machine.Kernel}, [2]string{"cpu", r.Machine.CPU}, [2]string{"provider", s.Provider},
			[2]string{"device", s.Device}, [2]string{"library", s.Library}, [2]string{"settings", strings.Join(s.Set, " ")})
		for _, p := range properties {
			if p[1] != "" {
				suite.AddProperty(oneLine(p[0]), oneLine(p[1]))
			}
		}
		total := 0.0
		for _, row := range r.Rows {
			if row.Stack == s.Name {
				suite.AddTestcase(testcase(row))
				total += row.Seconds
			}
		}
		suite.Time = seconds(total)
		out.AddSuite(suite)
	}
	out.Skipped = 0 // junit-10.xsd, which Jenkins and GitLab read, has no sum of these
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	return out.WriteXML(w)
}

// testcase is one row.
func testcase(row Row) junit.Testcase {
	c := junit.Testcase{Name: oneLine(row.Case), Classname: oneLine(row.Stack), Time: seconds(row.Seconds)}
	why := &junit.Result{Message: oneLine(row.Reason), Type: string(row.kind()), Data: Printable(row.Reason)}
	if row.Command != "" {
		why.Data += "\n\nto repeat it: " + Printable(row.Command)
	}
	switch kind := row.kind(); {
	case kind == Fail:
		c.Failure = why
	case kind == Timeout || kind == givenUp:
		c.Error = why
	case kind != Pass:
		c.Skipped = &junit.Result{Message: why.Message}
	}
	var output strings.Builder
	if row.Status == Pass && row.Excluded != "" {
		fmt.Fprintf(&output, "excluded, but passes: %s\n", row.Excluded)
	}
	for _, p := range row.Points {
		fmt.Fprintf(&output, "%10d B  %14.3f %s\n", p.Size, p.Value, p.Unit)
	}
	output.WriteString(row.Output)
	if output.Len() > 0 {
		c.SystemOut = &junit.Output{Data: Printable(output.String())}
	}
	return c
}

func seconds(s float64) string { return fmt.Sprintf("%.3f", s) }
