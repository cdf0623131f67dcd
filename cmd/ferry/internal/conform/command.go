package conform

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sync"

	"github.com/spf13/cobra"

	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
	"github.com/ferrympi/ferry/mpi"
)

// Command returns `ferry conform`, which runs the suite as one of the ranks of a
// job. It is hidden: `ferry matrix` is made of it.
func Command() *cobra.Command {
	var only string
	var goroutines int
	var onStreams bool
	cmd := &cobra.Command{
		Use:     "conform",
		Short:   "Run the conformance suite as a rank",
		Example: "  ferry run -n 4 ferry conform --only '^communicator/'",
		Hidden:  true,
		Args:    cobra.NoArgs,
	}
	cmd.Flags().StringVar(&only, "only", "", "run the cases whose names match `REGEXP`")
	cmd.Flags().IntVar(&goroutines, "goroutines", 0, "run the cases on `M` goroutine ranks of each process")
	cmd.Flags().BoolVar(&onStreams, "streams", false, "run the cases on a stream of each process")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		match, err := regexp.Compile(only)
		if err != nil {
			return exit.Usagef("--only: %w", err)
		}
		cases := slices.DeleteFunc(Cases(), func(c Case) bool { return !match.MatchString(c.Name) })
		if len(cases) == 0 {
			return exit.Usagef("--only %s: no case has such a name", only)
		}
		if !cmd.Flags().Changed("only") {
			for i := range cases {
				if cases[i].KillsRank {
					cases[i].SkipReason = deathSkip
				}
			}
		}
		if cmd.Flags().Changed("goroutines") && (goroutines < 1 || goroutines > mpi.MaxGoroutines) {
			return exit.Usagef("--goroutines %d: want 1 to %d goroutine ranks", goroutines, mpi.MaxGoroutines)
		}
		if onStreams && goroutines > 0 {
			return exit.Usagef("--streams: goroutine ranks have no streams: leave out --goroutines or --streams")
		}
		return run(cmd, cases, goroutines, onStreams)
	}
	return cmd
}

// deathSkip is the reason for the skip of fatal cases without --only. They end a job without --on-failure continue.
const deathSkip = "it kills a rank: ferry run -n 8 --on-failure continue --tolerate 4 ferry conform --only '^ft/'"

// run runs the cases, on goroutine ranks if their number is not 0, or on a stream. Rank 0 prints the outcomes, and
// every rank its errors.
func run(cmd *cobra.Command, cases []Case, goroutines int, onStreams bool) error {
	session, err := mpi.OpenSession(cmd.Context(), settings.Session()...)
	if err != nil {
		return err
	}
	if isAdded, err := RunIfAdded(cmd.Context(), session, Limit); isAdded && err == nil {
		return session.Close()
	} else if err != nil {
		return err
	}
	world, err := settings.World(cmd.Context(), session, "ferry.conform")
	if err != nil {
		return errors.Join(err, session.Close())
	}
	p := printer{out: cmd.OutOrStdout(), errs: cmd.ErrOrStderr()}
	switch {
	case onStreams:
		err = RunStream(cmd.Context(), session, world, cases, Limit, p.print)
	case goroutines > 0:
		err = RunGoroutines(cmd.Context(), session, world, goroutines, cases, Limit, p.print)
	default:
		err = Run(cmd.Context(), session, world, cases, Limit, p.print)
	}
	if err == nil { // After a failure, the close may block as long.
		err = errors.Join(world.Close(), session.Close())
	}
	if p.failedCount > 0 && (err == nil || errors.Is(err, mpi.ErrPending)) { // A case that failed has left requests or communicators.
		err = exit.Status(exit.Failed) // The lines name the cases.
	}
	return err
}

// printer prints the results of the ranks of this process.
type printer struct {
	out, errs io.Writer

	mu          sync.Mutex
	failedCount int
}

func (p *printer) print(r Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Status == Fail {
		p.failedCount++
	}
	if r.Rank == 0 {
		line := fmt.Sprintf("%-4s  %-60s  %s", r.Status, r.Case.Name, r.Case.Source())
		if r.Status == Fail {
			line += fmt.Sprintf("  failed in ranks %v", r.FailedRanks)
		}
		if r.SkipReason != "" {
			line += "  " + r.SkipReason
		}
		fmt.Fprintln(p.out, line)
	}
	if r.Err != nil {
		fmt.Fprintf(p.errs, "rank %d: %s: %v\n", r.Rank, r.Case.Name, r.Err)
	}
}
