package jobs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local/control"
	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/cmd/ferry/internal/launch"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
)

const resizeHelp = `Change the number of ranks of a running job. PID is the process id of ferry run
(ferry ps lists it). Exactly one of --add, --sub and --replace is given:

  --add N      N ranks join, which run the program of the set's last rank
  --sub N      the last N ranks leave, those that have failed before others; with 0,
               exactly those that have failed
  --replace N  N ranks leave, as with --sub, and as many join

The change is one of the process set NAME of --pset, or of the set that earlier finished
changes have made of it. The program takes part in it: all ranks of the set, and those that
join, call mpi.Session.Integrate. The command returns when they have, and the change is then
finished. It is withdrawn if that takes longer than --wait, and on INT, TERM, QUIT and HUP;
nothing has changed then. A program that supports no changes is reported as such.

A change that would exceed --max-ranks of ferry run, the cores of --cores-per-rank or the
limits of the system is refused with the number of ranks that fit; with --partial, that
number joins. A change of the same ranks that the program has requested, after a failure for
example, is awaited. While a user's change of the same ranks is in progress, another one is
refused, with the name of the first. A job that is ending, and the job of another user are
refused as well.

Exit status: 0 if the change is finished, 1 if nothing has changed, 2 for a wrong command
line, and 128 plus the signal's number if a signal withdraws it.`

type resizeOptions struct {
	addCount, subCount, replaceCount int
	pset                             string
	isPartial                        bool
	waitTimeout                      time.Duration
}

// ResizeCommand returns the command resize.
func ResizeCommand() *cobra.Command {
	var o resizeOptions
	cmd := &cobra.Command{
		Use:     "resize PID (--add N | --sub N | --replace N)",
		Short:   "Change the number of ranks of a running job",
		Long:    resizeHelp,
		Example: "  ferry resize 4711 --add 4\n  ferry resize 4711 --sub 2 --pset workers --wait 5m",
		RunE: func(cmd *cobra.Command, args []string) error {
			pid, req, err := o.request(cmd, args)
			if err != nil {
				return err
			}
			return resize(cmd, pid, req)
		},
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) (pids []string, _ cobra.ShellCompDirective) {
		if len(args) == 0 {
			for _, j := range list(cmd.Context()) {
				if j.PID != 0 {
					pids = append(pids, cobra.CompletionWithDesc(strconv.Itoa(j.PID), printable(j.Program)))
				}
			}
		}
		return pids, cobra.ShellCompDirectiveNoFileComp
	}
	f := cmd.Flags()
	f.IntVar(&o.addCount, "add", 0, "`N` ranks join")
	f.IntVar(&o.subCount, "sub", 0, "`N` ranks leave; 0: those that have failed")
	f.IntVar(&o.replaceCount, "replace", 0, "`N` ranks leave and as many join")
	f.StringVar(&o.pset, "pset", bootstrap.PsetWorld, "`NAME` of the process set")
	f.BoolVar(&o.isPartial, "partial", false, "add fewer ranks if not all fit")
	f.DurationVar(&o.waitTimeout, "wait", time.Minute, "withdraw the change if the program has not integrated it after this `TIME`")
	settings.Complete(cmd, map[string]cobra.CompletionFunc{"pset": settings.OneOf(bootstrap.PsetWorld)})
	return cmd
}

// request checks the command line.
func (o *resizeOptions) request(cmd *cobra.Command, args []string) (pid int, r control.Resize, err error) {
	if len(args) != 1 {
		return 0, r, exit.Usagef("%d arguments: want one, the process id of ferry run (ferry ps)", len(args))
	}
	if pid, err = strconv.Atoi(args[0]); err != nil || pid < 1 {
		return 0, r, exit.Usagef("process id %q: want a number above 0 (ferry ps)", args[0])
	}
	given := 0
	for op, n := range map[control.Op]int{control.Add: o.addCount, control.Sub: o.subCount, control.Replace: o.replaceCount} {
		if cmd.Flags().Changed(string(op)) {
			given++
			r.Op, r.N = op, n
		}
	}
	switch {
	case given != 1:
		return 0, r, exit.Usagef("%d of --add, --sub and --replace are given: want one", given)
	case r.N < 0 || r.N == 0 && r.Op != control.Sub:
		return 0, r, exit.Usagef("--%s %d: want a number above 0", r.Op, r.N)
	case o.waitTimeout <= 0:
		return 0, r, exit.Usagef("--wait %v: want a time above 0", o.waitTimeout)
	case o.isPartial && r.Op == control.Sub:
		return 0, r, exit.Usagef("--partial is for --add and --replace")
	case len(o.pset) > bootstrap.MaxName:
		return 0, r, exit.Usagef("--pset: a name of %d bytes, the limit is %d", len(o.pset), bootstrap.MaxName)
	}
	r.Pset, r.Partial, r.Wait = []byte(o.pset), o.isPartial, o.waitTimeout
	return pid, r, nil
}

// resize requests a change of the job of a process, and prints the result.
func resize(cmd *cobra.Command, pid int, r control.Resize) error {
	ctx, stop := exit.NotifyContext(cmd.Context(), exit.Signals()...)
	defer stop()
	done, err := change(ctx, pid, r)
	hasReplied := !errors.Is(err, control.ErrNoAnswer) && !errors.Is(err, control.ErrGone)
	switch {
	case err == nil:
		_, err = fmt.Fprintln(cmd.OutOrStdout(), result(done))
	case ctx.Err() != nil && hasReplied:
		err = fmt.Errorf("%w: the request is withdrawn, and nothing has changed", context.Cause(ctx))
	}
	return err
}

// result describes a finished change.
func result(r control.Resized) string {
	text := fmt.Sprintf("%d added, %d removed", r.Added, r.Removed)
	switch pset := printable(string(r.Pset)); {
	case r.Ranks == 1:
		text += fmt.Sprintf("; %s has 1 rank", pset)
	case r.Ranks > 1:
		text += fmt.Sprintf("; %s has %d ranks", pset, r.Ranks)
	}
	return text
}

// change makes a change of the job of a process.
func change(ctx context.Context, pid int, r control.Resize) (control.Resized, error) {
	c, dir, err := dial(pid)
	if err != nil {
		return control.Resized{}, err
	}
	_, err = statusOf(ctx, c)
	c.Close()
	if errors.Is(err, control.ErrNoAnswer) {
		return control.Resized{}, fmt.Errorf("the job of process %d %w: continue it if it is stopped (fg, or kill -CONT %d)", pid, err, pid)
	}
	if err == nil {
		c, err = control.Dial(dir)
	}
	if err != nil {
		return control.Resized{}, fmt.Errorf("the job of process %d: %w", pid, err)
	}
	defer c.Close()
	done, err := c.Resize(ctx, r)
	if errors.Is(err, control.ErrNoAnswer) {
		err = fmt.Errorf("the job of process %d %w: the request is withdrawn when the job continues", pid, err)
	}
	return done, err
}

// dial connects to the job of a process, and returns its directory.
func dial(pid int) (*control.Conn, string, error) {
	for _, dir := range launch.Running() {
		c, err := control.Dial(dir)
		switch {
		case err != nil:
		case c.PID() == pid:
			return c, dir, nil
		default:
			c.Close()
		}
	}
	return nil, "", noJob(pid)
}

// noJob returns the reason that a process has no job that this user can change.
func noJob(pid int) error {
	const remedy = "ferry ps lists your jobs"
	err := syscall.Kill(pid, 0)
	if errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("there is no process %d: %s", pid, remedy)
	}
	owner := -1
	if st, statErr := os.Stat(fmt.Sprint("/proc/", pid)); statErr == nil {
		if sys, ok := st.Sys().(*syscall.Stat_t); ok {
			owner = int(sys.Uid)
		}
	}
	switch {
	case owner >= 0 && owner != os.Geteuid():
		return fmt.Errorf("process %d belongs to user %d: only that user can change its job", pid, owner)
	case errors.Is(err, syscall.EPERM):
		return fmt.Errorf("process %d belongs to another user: only that user can change its job", pid)
	}
	return fmt.Errorf("process %d runs no job that can be changed: %s", pid, remedy)
}
