package bench

import (
	"errors"
	"io"
	"os"

	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
	"github.com/ferrympi/ferry/internal/outfile"
)

// table writes the rows of a benchmark to standard output in the format of --format, and with --json=FILE to that file
// as JSON.
type table struct {
	o    *options
	out  io.Writer
	file *os.File // Nil without FILE.
}

// jsonFormat is the format of --json.
const jsonFormat = "json"

// checkJSON makes --json the same as --format json.
func (o *options) checkJSON() error {
	if o.json != settings.Stdout {
		return nil
	}
	if o.given("format") && o.format != jsonFormat {
		return exit.Usagef("--json, --format %s: both are for standard output: leave one out, or use --json=FILE", o.format)
	}
	o.format = jsonFormat
	return nil
}

// begin writes the head of the table. One rank calls it. The caller closes the table.
func (o *options) begin(out io.Writer) (*table, error) {
	t := &table{o: o, out: out}
	if o.json != "" && o.json != settings.Stdout {
		var err error
		if t.file, err = outfile.Create(string(o.json)); err != nil {
			return nil, exit.Usagef("--json: %w", err)
		}
	}
	if _, err := io.WriteString(out, formats[o.format].head(o)); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

// row writes a row.
func (t *table) row(r Row) error {
	err := formats[t.o.format].row(t.out, r)
	if err == nil && t.file != nil {
		err = formats[jsonFormat].row(t.file, r)
	}
	return err
}

// close closes the file. A nil table has none.
func (t *table) close() error {
	if t == nil || t.file == nil {
		return nil
	}
	return t.file.Close()
}
