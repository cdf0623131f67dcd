package bench

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
	"github.com/ferrympi/ferry/internal/outfile"
	"github.com/ferrympi/ferry/internal/text"
)

// table writes the rows of a benchmark to standard output in the format of --format, and with --json=FILE to that file
// as JSON.
type table struct {
	o   *options
	out io.Writer
	// Nil without FILE.
	jsonFile *os.File
	// For skewRemarks.
	skewedRows []Row
}

// jsonFormat is the format of --json.
const jsonFormat = "json"

// osuFormat is the format of tables for readers. Its remarks have osuWidth columns.
const (
	osuFormat = "osu"
	osuWidth  = 80
)

// checkJSON makes --json the same as --format json.
func (o *options) checkJSON() error {
	if o.jsonOutput != settings.Stdout {
		return nil
	}
	if o.isGiven("format") && o.outputFormat != jsonFormat {
		return exit.Usagef("--json, --format %s: both are for standard output: leave one out, or use --json=FILE", o.outputFormat)
	}
	o.outputFormat = jsonFormat
	return nil
}

// begin writes the head of the table. One rank calls it. The caller closes the table.
func (o *options) begin(out io.Writer) (*table, error) {
	t := &table{o: o, out: out}
	if o.jsonOutput != "" && o.jsonOutput != settings.Stdout {
		var err error
		if t.jsonFile, err = outfile.Create(string(o.jsonOutput)); err != nil {
			return nil, exit.Usagef("--json: %w", err)
		}
	}
	if _, err := io.WriteString(out, formats[o.outputFormat].headText(o)); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

// row writes a row.
func (t *table) row(r Row) error {
	err := formats[t.o.outputFormat].writeRow(t.out, r)
	if err == nil && t.jsonFile != nil {
		err = formats[jsonFormat].writeRow(t.jsonFile, r)
	}
	if r.isSkewed() {
		t.skewedRows = append(t.skewedRows, r)
	}
	return err
}

// close writes the end of the table, and closes the file.
func (t *table) close() error {
	var err error
	if remarks := skewRemarks(t.skewedRows); t.o.outputFormat == osuFormat && remarks != "" {
		_, err = io.WriteString(t.out, remarks)
	}
	if t.jsonFile != nil {
		err = errors.Join(err, t.jsonFile.Close())
	}
	return err
}

// skewRemarks returns comments with p50 of the rows, by unit.
func skewRemarks(rows []Row) string {
	values := map[string]string{}
	var units []string
	for _, r := range rows {
		if values[r.Unit] == "" {
			units = append(units, r.Unit)
		}
		name := r.Bench
		if _, figure, ok := strings.Cut(r.Bench, "/"); ok {
			name = figure
		}
		switch {
		case r.Size > 0 && name == r.Bench:
			name = fmt.Sprint(r.Size)
		case r.Size > 0:
			name += fmt.Sprint(":", r.Size)
		}
		values[r.Unit] += fmt.Sprintf(" %s=%.2f", name, r.P50)
	}
	var b strings.Builder
	for _, unit := range units {
		text.Wrap(&b, osuWidth, "# ", fmt.Sprintf("p50 in %s where slow batches dominate the mean:%s", unit, values[unit]))
	}
	return b.String()
}
