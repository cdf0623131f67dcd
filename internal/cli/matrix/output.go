package matrix

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/ferrympi/ferry/internal/cli/exit"
	"github.com/ferrympi/ferry/internal/matrix"
	"github.com/ferrympi/ferry/internal/matrix/page"
)

// outputs are the files that a report goes to. They are opened before the run, and
// take their names when they are complete.
type outputs []*output

type output struct {
	path  string
	file  *os.File  // written under another name; nil: to is written directly
	to    io.Writer //
	write func(io.Writer, *matrix.Report, *matrix.Comparison) error
}

// open opens what the flags name. An error is a usage error that names flag and
// file; nothing is left then.
func (o *options) open(stdout io.Writer) (outputs, error) {
	var all outputs
	for _, x := range []struct {
		flag, path string
		write      func(io.Writer, *matrix.Report, *matrix.Comparison) error
	}{
		{"json", o.json, func(w io.Writer, r *matrix.Report, _ *matrix.Comparison) error { return matrix.WriteJSON(w, r) }},
		{"junit", o.junit, func(w io.Writer, r *matrix.Report, _ *matrix.Comparison) error { return matrix.WriteJUnit(w, r) }},
		{"html", o.html, page.Write},
	} {
		if x.path == "" {
			continue
		}
		out := &output{path: x.path, write: x.write}
		if x.flag == "json" && x.path == "-" {
			out.to = stdout
		} else if err := out.create(); err != nil {
			all.discard()
			return nil, exit.Usagef("--%s: %w", x.flag, err)
		}
		all = append(all, out)
	}
	return all, nil
}

// create opens a file beside the one that it becomes, or the file itself if that is
// no ordinary one, such as /dev/null.
func (o *output) create() error {
	switch st, err := os.Stat(o.path); {
	case err == nil && st.IsDir():
		return fmt.Errorf("%s is a directory", o.path)
	case err == nil && !st.Mode().IsRegular():
		o.file, err = os.OpenFile(o.path, os.O_WRONLY, 0)
		o.to = o.file
		return err
	case err == nil:
		// One that must not be written is not replaced either.
		f, err := os.OpenFile(o.path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		f.Close()
	}
	name := filepath.Join(filepath.Dir(o.path), fmt.Sprintf(".%s.%d", filepath.Base(o.path), os.Getpid()))
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return fmt.Errorf("%s can't be written: %w", o.path, err)
	}
	o.file, o.to = f, f
	return nil
}

// discard removes what was not written.
func (all outputs) discard() {
	for _, o := range all {
		if o.file == nil {
			continue
		}
		o.file.Close()
		if o.file.Name() != o.path {
			os.Remove(o.file.Name())
		}
		o.file = nil
	}
}

// writeAll writes all, and joins what went wrong.
func (all outputs) writeAll(r *matrix.Report, c *matrix.Comparison) error {
	var errs []error
	for _, o := range all {
		if err := o.finish(r, c); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", o.path, err))
		}
	}
	return errors.Join(errs...)
}

func (o *output) finish(r *matrix.Report, c *matrix.Comparison) error {
	w := bufio.NewWriter(o.to)
	err := errors.Join(o.write(w, r, c), w.Flush())
	if err != nil || o.file == nil {
		return err // discard closes
	}
	if err := o.file.Close(); err != nil {
		return err
	}
	if o.file.Name() != o.path {
		if err := os.Rename(o.file.Name(), o.path); err != nil {
			return err
		}
	}
	o.file = nil
	return nil
}
