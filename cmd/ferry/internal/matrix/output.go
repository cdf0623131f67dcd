package matrix

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
	"github.com/ferrympi/ferry/internal/outfile"
)

// outputs are the files of a report. They are checked before the run. A regular file takes its
// name when it is complete, each time that it is written.
type outputs []*output

type output struct {
	flag, path string
	file       *outfile.Report // nil for standard output
	stdout     io.Writer
	write      writer
}

// A writer writes a report in one form.
type writer func(io.Writer, *report.Report, *report.Comparison) error

// open checks the files that the flags name. An error is a usage error with flag and file, and
// leaves no file behind.
func (o *options) open(stdout io.Writer) (outputs, error) {
	var all outputs
	for _, x := range []struct {
		flag, path string
		write      writer
	}{
		{"json", string(o.json), func(w io.Writer, r *report.Report, _ *report.Comparison) error { return report.WriteJSON(w, r) }},
		{"junit", o.junit, func(w io.Writer, r *report.Report, _ *report.Comparison) error { return report.WriteJUnit(w, r) }},
		{"html", o.html, report.WriteHTML},
	} {
		if x.path == "" {
			continue
		}
		out := &output{flag: x.flag, path: x.path, write: x.write, stdout: stdout}
		var err error
		if x.path != string(settings.Stdout) {
			out.file, err = outfile.NewReport(x.path)
		}
		if i := slices.IndexFunc(all, out.isSame); err == nil && i >= 0 {
			all = append(all, out)
			err = fmt.Errorf("--%[2]s writes to %[1]s already", x.path, all[i].flag)
		}
		if err != nil {
			all.close()
			return nil, exit.Usagef("--%s: %w", x.flag, err)
		}
		all = append(all, out)
	}
	return all, nil
}

// isSame reports whether two outputs go to one file.
func (o *output) isSame(x *output) bool {
	if o.file == nil || x.file == nil {
		return o.file == x.file
	}
	return o.file.IsSameFile(x.file)
}

// stdout reports whether standard output is a report.
func (all outputs) stdout() bool {
	return slices.ContainsFunc(all, func(o *output) bool { return o.file == nil })
}

func (all outputs) close() {
	for _, o := range all {
		if o.file != nil {
			o.file.Close()
		}
	}
}

// save writes all outputs, or before the end only those that replace a file, and joins the
// errors.
func (all outputs) save(r *report.Report, c *report.Comparison, isEnd bool) error {
	var errs []error
	for _, o := range all {
		write := func(w io.Writer) error { return o.write(w, r, c) }
		var err error
		switch {
		case o.file != nil && (isEnd || o.file.IsReplaced()):
			err = o.file.Write(write)
		case o.file == nil && isEnd:
			w := bufio.NewWriter(o.stdout)
			err = errors.Join(write(w), w.Flush())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", o.path, err))
		}
	}
	return errors.Join(errs...)
}
