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

// outputs are the files that a report goes to. That they can be written is known
// before the run; they take their names when they are complete, each time that they
// are written.
type outputs []*output

type output struct {
	path  string
	to    io.Writer // what is open during the run: standard output, or no ordinary file; nil: the file of that name is replaced
	write func(io.Writer, *matrix.Report, *matrix.Comparison) error
}

// open tests what the flags name. An error is a usage error that names flag and
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
		} else if err := out.test(); err != nil {
			all.close()
			return nil, exit.Usagef("--%s: %w", x.flag, err)
		}
		all = append(all, out)
	}
	return all, nil
}

// test says why a file can't be written. One that is no ordinary file, such as
// /dev/null, is opened.
func (o *output) test() error {
	switch st, err := os.Stat(o.path); {
	case err == nil && st.IsDir():
		return fmt.Errorf("%s is a directory", o.path)
	case err == nil && !st.Mode().IsRegular():
		f, err := os.OpenFile(o.path, os.O_WRONLY, 0)
		if err == nil {
			o.to = f
		}
		return err
	case err == nil:
		// One that must not be written is not replaced either.
		f, err := os.OpenFile(o.path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		f.Close()
	}
	f, err := o.create()
	if err != nil {
		return fmt.Errorf("%s can't be written: %w", o.path, err)
	}
	return remove(f)
}

// create makes the file beside the one that it becomes.
func (o *output) create() (*os.File, error) {
	name := filepath.Join(filepath.Dir(o.path), fmt.Sprintf(".%s.%d", filepath.Base(o.path), os.Getpid()))
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
}

// remove closes and removes a file.
func remove(f *os.File) error { return errors.Join(f.Close(), os.Remove(f.Name())) }

// close closes what is open.
func (all outputs) close() {
	for _, o := range all {
		if f, ok := o.to.(*os.File); ok && o.path != "-" {
			f.Close()
		}
	}
}

// save writes the files that will be replaced once more, and joins what went wrong.
func (all outputs) save(r *matrix.Report) error {
	return all.each(func(o *output) error {
		if o.to != nil {
			return nil
		}
		return o.replace(r, nil)
	})
}

// writeAll writes all, and joins what went wrong.
func (all outputs) writeAll(r *matrix.Report, c *matrix.Comparison) error {
	return all.each(func(o *output) error {
		if o.to != nil {
			return o.put(o.to, r, c)
		}
		return o.replace(r, c)
	})
}

func (all outputs) each(f func(*output) error) error {
	var errs []error
	for _, o := range all {
		if err := f(o); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", o.path, err))
		}
	}
	return errors.Join(errs...)
}

// replace writes a file that takes the place of the one before when it is complete.
func (o *output) replace(r *matrix.Report, c *matrix.Comparison) error {
	f, err := o.create()
	if err != nil {
		return err
	}
	if err := o.put(f, r, c); err != nil {
		return errors.Join(err, remove(f))
	}
	err = f.Close()
	if err == nil {
		err = os.Rename(f.Name(), o.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func (o *output) put(to io.Writer, r *matrix.Report, c *matrix.Comparison) error {
	w := bufio.NewWriter(to)
	return errors.Join(o.write(w, r, c), w.Flush())
}
