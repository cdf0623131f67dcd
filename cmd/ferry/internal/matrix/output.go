package matrix

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/google/renameio/v2"

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
	write      writer
}

// A writer writes a report in one form.
type writer func(io.Writer, *report.Report, *report.Comparison) error

// open tests what the flags name. An error is a usage error that names flag and
// file; nothing is left then.
func (o *options) open(stdout io.Writer) (outputs, error) {
	var all outputs
	for _, x := range []struct {
		flag, path string
		write      writer
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
		if i := slices.IndexFunc(all, out.sameAs); err == nil && i >= 0 {
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

// sameAs says that two outputs go to the same place.
func (o *output) sameAs(x *output) bool {
	return o.path == "-" && x.path == "-" || o.file != "" && o.file == x.file
}

// stdout says whether standard output is a report.
func (all outputs) stdout() bool {
	return slices.ContainsFunc(all, func(o *output) bool { return o.path == "-" })
}

// test says why a file can't be written. One that is not an ordinary file, such as
// /dev/null, is opened; for a named pipe somebody must be there to read it.
func (o *output) test() error {
	st, err := os.Stat(o.path)
	isNew := err != nil
	switch {
	case isNew || st.Mode().IsRegular():
	case st.IsDir():
		return fmt.Errorf("%s is a directory", o.path)
	default:
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
	}
	// One that must not be written is not replaced either. A link may lead to what is
	// not there yet.
	f, err := os.OpenFile(o.path, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	f.Close()
	if o.file, err = filepath.Abs(o.path); err == nil {
		o.file, err = filepath.EvalSymlinks(o.file)
	}
	if err == nil && isNew {
		err = os.Remove(o.file)
	}
	if err != nil {
		return err
	}
	beside, err := o.create()
	if err != nil {
		return fmt.Errorf("%s can't be replaced: %w", o.path, err)
	}
	return beside.Cleanup()
}

// create makes the file beside the one that it becomes.
func (o *output) create() (*renameio.PendingFile, error) {
	return renameio.NewPendingFile(o.file, renameio.WithTempDir(filepath.Dir(o.file)), renameio.WithPermissions(0o666))
}

func (all outputs) close() {
	for _, o := range all {
		if f, ok := o.to.(*os.File); ok && o.path != "-" {
			f.Close()
		}
	}
}

// save writes all, or before the end those that will be replaced once more, and joins
// what went wrong.
func (all outputs) save(r *report.Report, c *report.Comparison, end bool) error {
	var errs []error
	for _, o := range all {
		var err error
		switch {
		case o.to == nil:
			err = o.replace(r, c)
		case end:
			err = o.put(o.to, r, c)
		}
		if err != nil {
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
	defer f.Cleanup()
	if err := o.put(f, r, c); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}

func (o *output) put(to io.Writer, r *report.Report, c *report.Comparison) error {
	w := bufio.NewWriter(to)
	return errors.Join(o.write(w, r, c), w.Flush())
}
