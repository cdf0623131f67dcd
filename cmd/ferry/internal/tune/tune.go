// Package tune is `ferry tune`: it measures which values of the parameters that
// choose a message's path are best on this machine, and keeps them where every
// later program finds them (internal/tuned, config).
//
// It runs `ferry bench` as jobs on two processors. Machines drift, and so every
// sample has the raw hop beside it, samples taken while the processors were far
// from one another don't count, and a value is compared with the best one so far
// in turns. It is taken only if it is better by more than noise reaches.
package tune

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
	"github.com/ferrympi/ferry/cmd/ferry/internal/version"
	"github.com/ferrympi/ferry/config"
	"github.com/ferrympi/ferry/config/tuned"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/internal/hop"
	"github.com/ferrympi/ferry/internal/working"
)

const long = `Measure which limits and sizes are best on this machine, and keep the result.

Two ranks exchange messages of 1 KiB to 4 MiB: sent at once or offered first, in
rings and frames of other sizes, and read out of AllocMem memory. Their
collectives, and those of eight ranks on two processors, go through shared memory
or as messages. A value is taken in place of ferry's default if it is better by
5 % and by more than the noise. By which way a large message is copied is not
tuned: programs learn that while they run (ferry explain --learn). It takes a
minute or two; run nothing else meanwhile.

The result is a file in the user's cache directory. Programs find it when they
start; files, environment and flags win over it, and tune.use=off ignores it.
ferry info shows it. Run ferry tune again when the kernel or ferry is new.`

type options struct {
	dryRun, forget, asJSON, quick bool
}

const (
	// limit is after what time contests have no more than one round, but for the last
	// look; share is the longest that one of them goes on. Those of a quiet machine take 2 to
	// 6 s; a busy one must not spend all its time on the first.
	limit = 85 * time.Second
	share = 12 * time.Second

	// rough is by how much less there is of both for a rougher look.
	rough = 6
)

// Command returns the command.
func Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "tune",
		Short: "Measure which paths messages should take on this machine",
		Long:  long,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.forget {
				if o.dryRun || o.asJSON || o.quick {
					return exit.Usagef("--forget takes no other flags")
				}
				return forget(cmd)
			}
			return o.run(cmd)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.dryRun, "dry-run", false, "measure, and keep nothing")
	f.BoolVar(&o.asJSON, "json", false, "print the result and all figures as JSON")
	f.BoolVar(&o.quick, "quick", false, "a rougher look, in a few seconds: fewer samples, up to 256 KiB")
	f.BoolVar(&o.forget, "forget", false, "remove the result that was kept for this machine")
	return cmd
}

// directory is where results are kept; "" if the environment doesn't say.
func directory() string { return tuned.Dir(os.Getenv("XDG_CACHE_HOME"), os.Getenv("HOME")) }

func forget(cmd *cobra.Command) error {
	said := "no result is kept for this machine"
	if dir := directory(); tuned.Exists(dir) {
		file := tuned.ThisMachine().File(dir)
		switch err := os.Remove(file); {
		case err == nil:
			said = "removed " + file
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), said)
	return err
}

func (o *options) run(cmd *cobra.Command) error {
	dir := directory()
	inJob, err := settings.InJob(nil)
	switch {
	case err != nil:
		return err
	case inJob:
		return exit.Usagef("it starts ranks by itself: run it without a launcher")
	case cpu.Available() < processors:
		return errors.New("two processors are needed, and this process may run on one")
	case o.dryRun:
	case dir == "":
		return exit.Usagef("there is no cache directory to keep the result in: set HOME or XDG_CACHE_HOME, or use --dry-run")
	default:
		if err := tuned.Prepare(dir); err != nil {
			return fmt.Errorf("the result can't be kept: %w; --dry-run measures anyway", err)
		}
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), exit.Signals()...)
	defer stop()
	s, err := o.search(ctx, cmd)
	if err != nil {
		return err
	}
	result, err := s.result()
	if err != nil {
		return err
	}
	file := ""
	if !o.dryRun {
		file = result.Machine.File(dir)
		if err := result.Write(file); err != nil {
			return fmt.Errorf("the result can't be kept: %w", err)
		}
	}
	if o.asJSON {
		return settings.PrintJSON(cmd.OutOrStdout(), struct {
			File string `json:"file"` // empty: it is not kept
			*tuned.Result
		}{file, result})
	}
	if err := s.print(cmd.OutOrStdout()); err != nil {
		return err
	}
	what := "not kept"
	if file != "" {
		what = "kept in " + file
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "\n%s: %d of %d parameters differ from their defaults; %d of %d samples counted (raw hop at most %.1f times the best, %.0f ns)\n",
		what, len(result.Changed()), len(result.Params), s.counted, s.samples, hop.NearFactor, s.bestHop.NS())
	return err
}

// search prepares a search and runs it.
func (o *options) search(ctx context.Context, cmd *cobra.Command) (*search, error) {
	stderr := working.Start(cmd.ErrOrStderr(), "ferry tune", "looking at the processors")
	defer stderr.Close()
	// An old result must not be measured. Every parameter that one may hold is set
	// in each job besides.
	untuned := []string{config.UseTuned + "=off"}
	ranks, err := settings.Prepare(ctx, nil, untuned)
	if err != nil {
		return nil, err
	}
	jobs := &starter{ranks: ranks, stderr: stderr}
	s := &search{
		meter: &meter{start: jobs.job, wanted: 7, patience: hop.Patience, share: share}, most: 4 * mib, defaults: setting{},
		step: stderr.Say,
	}
	s.note = func(format string, args ...any) { fmt.Fprintf(stderr, "ferry tune: "+format+"\n", args...) }
	limit := limit
	if o.quick {
		s.wanted, s.most, s.share, limit = 3, 256*kib, share/rough, limit/rough
	}
	values, _, err := settings.Load(settings.Registry(), nil, untuned)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		value, _ := values.Get(name)
		spec, ok := values.Spec(name)
		if !ok {
			return nil, fmt.Errorf("there is no parameter %s: btl shm or pml ob1 is not built", name)
		}
		s.defaults[name] = spec.Default
		if value.Source != spec.DefaultSource {
			s.note("%s is set by %s, and that wins over what is measured here", name, value.Source)
		}
	}
	s.best = s.defaults
	if err := s.shares(ctx, s.defaults); err != nil {
		return nil, err
	}
	if err := s.bestHop.Calibrate(ctx, s.hop); err != nil {
		return nil, err
	}
	s.end = time.Now().Add(limit)
	return s, s.run(ctx)
}

// result is what is kept of a search.
func (s *search) result() (*tuned.Result, error) {
	figures, err := s.evidence()
	return &tuned.Result{
		Format: tuned.Format, Machine: tuned.ThisMachine(), Ferry: version.String(), Measured: time.Now().UTC().Truncate(time.Second),
		Params: s.params(), Figures: figures,
	}, err
}
