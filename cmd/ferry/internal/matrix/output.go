package matrix

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
)

// outputs are the files that a report goes to. That they can be written is known
// before the run; they take their names when they are complete, each time that they
// are written.
type outputs []*output

type output struct {
	flag, path string
	to         io.Writer // what is open during the run: standard output, or no ordinary file; nil: file is replaced
	file       string    // where the symbolic links of path lead
	write      func(io.Writer, *report.Report, *report.Comparison) error
}

// open tests what the flags name. An error is a usage error that names flag and
// file; nothing is left then.
func (o *options) open(stdout io.Writer) (outputs, error) {
	var all outputs
	for _, x := range []struct {
		flag, path string
		write      func(io.Writer, *report.Report, *report.Comparison) error
	}{
		{"json", o.json, func(w io.Writer, r *report.Report, _ *report.Comparison) error { return report.WriteJSON(w, r) }},
		{"junit", o.junit, func(w io.Writer, r *report.Report, _ *report.Comparison) error { return report.WriteJUnit(w, r) }},
		{"html", o.html, report.WriteHTML},
	} {
		if x.path == "" {
			continue
		}
		out := &output{flag: x.flag, path: x.path, write: x.write}
		var err error
		if x.path == "-" {
			out.to = stdout
		} else {
			err = out.test()
		}
		if err == nil {
			err = all.without(out)
		}
		if err != nil {
			all.close()
			return nil, exit.Usagef("--%s: %w", x.flag, err)
		}
		all = append(all, out)
	}
	return all, nil
}

// without says that another output goes to the same place.
func (all outputs) without(o *output) error {
	for _, x := range all {
		if x.to == o.to && filepath.Base(x.file) == filepath.Base(o.file) && sameDir(x.file, o.file) {
			return fmt.Errorf("%s is where --%s goes", o.path, x.flag)
		}
	}
	return nil
}

// sameDir says whether two files are in one directory, whatever that is called.
func sameDir(a, b string) bool {
	x, errA := os.Stat(filepath.Dir(a))
	y, errB := os.Stat(filepath.Dir(b))
	return errA == nil && errB == nil && os.SameFile(x, y)
}

// stdout says whether standard output is a report.
func (all outputs) stdout() bool {
	return slices.ContainsFunc(all, func(o *output) bool { return o.path == "-" })
}

// test says why a file can't be written. One that is no ordinary file, such as
// /dev/null, is opened; for a named pipe somebody must be there to read it.
func (o *output) test() (err error) {
	switch st, statErr := os.Stat(o.path); {
	case statErr == nil && st.IsDir():
		return fmt.Errorf("%s is a directory", o.path)
	case statErr == nil && !st.Mode().IsRegular():
		how := os.O_WRONLY
		if st.Mode()&os.ModeNamedPipe != 0 {
			how |= syscall.O_NONBLOCK // to open, not to write: the runtime waits then
		}
		f, err := os.OpenFile(o.path, how, 0)
		if errors.Is(err, syscall.ENXIO) {
			return fmt.Errorf("%s: nobody reads from it", o.path)
		}
		if err == nil {
			o.to = f
		}
		return err
	case statErr == nil:
		// One that must not be written is not replaced either.
		f, err := os.OpenFile(o.path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		f.Close()
	}
	var f *os.File
	if o.file, err = follow(o.path); err == nil {
		f, err = o.create()
	}
	if err != nil {
		return fmt.Errorf("%s can't be written: %w", o.path, err)
	}
	return remove(f)
}

// mostLinks is how many symbolic links the kernel follows.
const mostLinks = 40

// follow returns where the symbolic links of a path lead, if need be to a file that is
// not there yet.
func follow(path string) (string, error) {
	for range mostLinks {
		// Not by filepath.Dir: behind a link ".." is another directory.
		dir, name := filepath.Split(path)
		dir, err := filepath.EvalSymlinks(cmp.Or(dir, "."))
		if err != nil {
			return "", err
		}
		path = filepath.Join(dir, name)
		to, err := os.Readlink(path)
		switch {
		case err != nil: // it is no link
			return path, nil
		case filepath.IsAbs(to):
			path = to
		default:
			path = dir + "/" + to
		}
	}
	return "", syscall.ELOOP
}

// create makes the file beside the one that it becomes.
func (o *output) create() (*os.File, error) {
	name := filepath.Join(filepath.Dir(o.file), fmt.Sprintf(".%s.%d", filepath.Base(o.file), os.Getpid()))
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
func (all outputs) save(r *report.Report) error {
	return all.each(func(o *output) error {
		if o.to != nil {
			return nil
		}
		return o.replace(r, nil)
	})
}

// writeAll writes all, and joins what went wrong.
func (all outputs) writeAll(r *report.Report, c *report.Comparison) error {
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
func (o *output) replace(r *report.Report, c *report.Comparison) error {
	f, err := o.create()
	if err != nil {
		return err
	}
	if err := o.put(f, r, c); err != nil {
		return errors.Join(err, remove(f))
	}
	err = f.Close()
	if err == nil {
		err = os.Rename(f.Name(), o.file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func (o *output) put(to io.Writer, r *report.Report, c *report.Comparison) error {
	w := bufio.NewWriter(to)
	return errors.Join(o.write(w, r, c), w.Flush())
}
