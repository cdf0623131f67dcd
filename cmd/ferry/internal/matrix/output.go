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
	flag, path  string
	reportFile  *outfile.Report // nil for standard output
	stdout      io.Writer
	writeReport writer
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
		{"json", string(o.jsonPath), func(w io.Writer, r *report.Report, _ *report.Comparison) error { return report.WriteJSON(w, r) }},
		{"junit", o.junitPath, func(w io.Writer, r *report.Report, _ *report.Comparison) error { return report.WriteJUnit(w, r) }},
		{"html", o.htmlPath, report.WriteHTML},
	} {
		if x.path == "" {
			continue
		}
		out := &output{flag: x.flag, path: x.path, writeReport: x.write, stdout: stdout}
		var err error
		if x.path != string(settings.Stdout) {
			out.reportFile, err = outfile.NewReport(x.path)
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
	if o.reportFile == nil || x.reportFile == nil {
		return o.reportFile == x.reportFile
	}
	return o.reportFile.IsSameFile(x.reportFile)
}

// stdout reports whether standard output is a report.
func (all outputs) stdout() bool {
	return slices.ContainsFunc(all, func(o *output) bool { return o.reportFile == nil })
}

func (all outputs) close() {
	for _, o := range all {
		if o.reportFile != nil {
			o.reportFile.Close()
		}
	}
}

// save writes all outputs, or before the end only those that replace a file, and joins the
// errors.
func (all outputs) save(r *report.Report, c *report.Comparison, isEnd bool) error {
	var errs []error
	for _, o := range all {
		write := func(w io.Writer) error { return o.writeReport(w, r, c) }
		var err error
		switch {
		case o.reportFile != nil && (isEnd || o.reportFile.IsReplaced()):
			err = o.reportFile.Write(write)
		case o.reportFile == nil && isEnd:
			w := bufio.NewWriter(o.stdout)
			err = errors.Join(write(w), w.Flush())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", o.path, err))
		}
	}
	return errors.Join(errs...)
}
