package report

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jstemmer/go-junit-report/v2/junit"
)

// longestReport limits the input of ReadJSON. A full run of thirty failing stacks needs a tenth of it.
const longestReport = 256 << 20

// WriteJSON writes the report; ReadJSON reads it. Bytes that are no UTF-8 become
// the replacement character.
func WriteJSON(w io.Writer, r *Report) error {
	out := *r
	// Lists that are empty stay lists.
	out.Stacks = append([]Stack{}, r.Stacks...)
	out.Rows = append([]Row{}, r.Rows...)
	out.Machine.Libraries = append([]Library{}, r.Machine.Libraries...)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	return e.Encode(out)
}

// ReadJSON reads a report of any version of ferry. Unknown keys are ignored. A contradiction is an error that names
// the row.
func ReadJSON(r io.Reader) (*Report, error) {
	limited := &io.LimitedReader{R: r, N: longestReport}
	d := json.NewDecoder(limited)
	report := new(Report)
	if err := d.Decode(report); err != nil {
		if limited.N == 0 {
			return nil, fmt.Errorf("not a report of ferry matrix: longer than %d MiB", longestReport>>20)
		}
		return nil, fmt.Errorf("not a report of ferry matrix: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("not a report of ferry matrix: something follows it")
	}
	if report.Rows == nil {
		return nil, errors.New(`not a report of ferry matrix: it has no "rows"`)
	}
	type key struct{ stack, name string }
	seen := map[key]bool{}
	for i, row := range report.Rows {
		k := key{row.Stack, row.Case}
		if seen[k] {
			return nil, fmt.Errorf("row %d (stack %q, case %q): it was there already", i+1, row.Stack, row.Case)
		}
		seen[k] = true
		if err := row.check(); err != nil {
			return nil, fmt.Errorf("row %d (stack %q, case %q): %w", i+1, row.Stack, row.Case, err)
		}
	}
	return report, nil
}

// check reports the first missing property of a row.
func (r *Row) check() error {
	switch {
	case r.Stack == "" || r.Case == "":
		return errors.New("stack or case is missing")
	case !slices.Contains(Statuses, r.Status):
		return fmt.Errorf("status %q is none of %v", r.Status, Statuses)
	case r.Status != Pass && r.Reason == "":
		return fmt.Errorf("a status of %s needs a reason", r.Status)
	case r.IsAbandoned && r.Status != Skip:
		return fmt.Errorf("it was given up, and is a %s", r.Status)
	case r.Seconds < 0:
		return fmt.Errorf("it took %v seconds", r.Seconds)
	}
	for _, p := range r.Points {
		if p.Size < 0 || p.Value < 0 || p.Unit == "" {
			return fmt.Errorf("point %+v is not a figure", p)
		}
	}
	return nil
}

// WriteJUnit writes the report as JUnit's XML, with a suite for each stack and the library versions as properties.
// Failed cases are failures. Cases that did not end or were not run because of Row.IsAbandoned are errors. All others
// that did not pass are skipped, with their reasons.
func WriteJUnit(w io.Writer, r *Report) error {
	out := junit.Testsuites{Name: "ferry matrix", Time: seconds(r.Seconds)}
	for _, line := range r.Table().Lines {
		s := line.Stack
		suite := junit.Testsuite{
			Name: oneLine(s.Name), Hostname: oneLine(r.Machine.Host), ID: len(out.Suites),
			Timestamp: r.StartedAt.UTC().Format("2006-01-02T15:04:05"), // without a zone, as junit-10.xsd has it
		}
		properties := [][2]string{{"suite", r.Suite}, {"partial", r.EndReason}, {"ferry", r.Machine.FerryVersion}}
		for _, l := range r.Machine.Libraries {
			properties = append(properties, [2]string{l.Name, l.Version})
		}
		properties = append(properties, [2]string{"kernel", r.Machine.Kernel}, [2]string{"cpu", r.Machine.CPU}, [2]string{"provider", s.Provider},
			[2]string{"device", s.Device}, [2]string{"library", s.Library}, [2]string{"settings", strings.Join(s.SetParams, " ")})
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

func testcase(row Row) junit.Testcase {
	c := junit.Testcase{Name: oneLine(row.Case), Classname: oneLine(row.Stack), Time: seconds(row.Seconds)}
	why := &junit.Result{Message: oneLine(row.Reason), Type: string(row.kind()), Data: Printable(row.Reason)}
	if row.Command != "" {
		why.Data += "\n\nto repeat it: " + Printable(row.Command)
	}
	switch kind := row.kind(); {
	case kind == Fail:
		c.Failure = why
	case kind == Timeout || kind == abandoned:
		c.Error = why
	case kind != Pass:
		c.Skipped = &junit.Result{Message: why.Message}
	}
	var output strings.Builder
	if row.Status == Pass && row.ExclusionReason != "" {
		fmt.Fprintf(&output, "excluded, but passes: %s\n", row.ExclusionReason)
	}
	for _, p := range row.Points {
		fmt.Fprintf(&output, "%10d B  %14.3f %s\n", p.Size, p.Value, p.Unit)
	}
	output.WriteString(row.OutputTail)
	if output.Len() > 0 {
		c.SystemOut = &junit.Output{Data: Printable(output.String())}
	}
	return c
}

func seconds(s float64) string { return fmt.Sprintf("%.3f", s) }
