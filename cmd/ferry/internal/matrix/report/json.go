package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// longestReport bounds what ReadJSON reads: a full run of thirty stacks that all
// fail takes a tenth of it.
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

// ReadJSON reads what WriteJSON has written, here or in another version of ferry:
// keys that it does not know are passed over. A report that contradicts itself is
// an error that names the row.
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
		return nil, errors.New("not a report of ferry matrix: something stands behind it")
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

// check says what a row lacks.
func (r *Row) check() error {
	switch {
	case r.Stack == "" || r.Case == "":
		return errors.New("stack or case is missing")
	case !slices.Contains(Statuses, r.Status):
		return fmt.Errorf("status %q is none of %v", r.Status, Statuses)
	case r.Status != Pass && r.Reason == "":
		return fmt.Errorf("a status of %s needs a reason", r.Status)
	case r.GivenUp && r.Status != Skip:
		return fmt.Errorf("it was given up, and is a %s", r.Status)
	case r.Seconds < 0:
		return fmt.Errorf("it took %v seconds", r.Seconds)
	}
	for _, p := range r.Points {
		if p.Size < 0 || p.Value < 0 || p.Unit == "" {
			return fmt.Errorf("point %+v is no figure", p)
		}
	}
	return nil
}
