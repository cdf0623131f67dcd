// Package explain implements `ferry explain`. It starts ranks of ferry itself, connects them, and shows the
// decisions of selection for each pair of ranks and each component. `ferry run --explain` shows them for any program.
package explain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
	"github.com/ferrympi/ferry/internal/text"
	"github.com/ferrympi/ferry/mpi"
)

// limit is the time limit of the job, without --learn.
const limit = time.Minute

const long = `Start ranks on this machine, exchange a message between each pair, and show which
protocol, transport and device carried it, and why the others did not. With --all,
the last table shows the algorithm of each collective operation, by block size.

A pair without a transport is shown as "no transport" (in JSON an empty string),
with each transport's reason beside it; the exit status is still 0. It is 2 if
ferry can't do what --set asks for.`

// Command returns the command.
func Command() *cobra.Command {
	var ranks int
	var all, isRank bool
	var learn time.Duration
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Show the transports between ranks, and the reasons against others",
		Long:  long,
		Args:  cobra.NoArgs,
	}
	f := cmd.Flags()
	f.IntVarP(&ranks, "n", "n", 2, "number of ranks `N`")
	f.DurationVar(&learn, "learn", 0, "exchange large messages for this `TIME`, and show the fastest protocols")
	f.BoolVar(&all, "all", false, "show the algorithms of collective operations too")
	var asJSON settings.JSON
	asJSON.Flag(f, "write everything as JSON")
	f.BoolVar(&isRank, "rank", false, "be one of the ranks")
	_ = f.MarkHidden("rank") // fails only for a flag that isn't there
	set := settings.Flag(f)
	settings.Complete(cmd, map[string]cobra.CompletionFunc{"set": settings.Set})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if isRank {
			return meet(cmd.Context(), cmd.ErrOrStderr(), learn)
		}
		if ranks < 1 {
			return exit.Usagef("-n %d: want at least 1 rank", ranks)
		}
		if learn < 0 || learn > maxLearn {
			return exit.Usagef("--learn %v: want at most %v", learn, maxLearn)
		}
		out := cmd.OutOrStdout()
		output, err := asJSON.Open(out)
		if err != nil {
			return err
		}
		defer output.Close()
		e, err := collect(cmd, ranks, learn, *set)
		if err != nil {
			return err
		}
		return output.Write(e, func() error {
			detail := Components
			if all {
				detail = All
			}
			return e.Print(out, detail, text.Width(out))
		})
	}
	return cmd
}

// collect runs the ranks and merges their reports.
func collect(cmd *cobra.Command, ranks int, learn time.Duration, set []string) (Explanation, error) {
	prepared, err := settings.Prepare(cmd.Context(), nil, append(set, ReportParam+"="+ReportName))
	if err != nil {
		return Explanation{}, err
	}
	job := prepared.Self(ranks, "explain", "--rank", "--learn", learn.String())
	job.Stdout, job.Stderr, job.Timeout = cmd.ErrOrStderr(), cmd.ErrOrStderr(), limit+learn
	ctx, stop := exit.NotifyContext(cmd.Context(), exit.Signals()...)
	defer stop()
	res, err := job.Run(ctx)
	if err == nil {
		err = exit.Status(res.Status) // The rank has printed the reason.
	}
	if err != nil {
		return Explanation{}, err
	}
	return Merge(res.Reports)
}

// meeting is the time limit of the exchange, without --learn.
const meeting = 10 * time.Second

// meet runs a rank. All ranks exchange a message with all reachable ones, which opens each path. A missing or
// failed path is not an error, because the explanation reports it.
func meet(ctx context.Context, stderr io.Writer, learn time.Duration) (err error) {
	session, comm, done, err := settings.Join(ctx, "ferry.explain")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	routes, err := session.Explain(ctx)
	if err != nil {
		return err
	}
	unreachable := map[int]bool{}
	for _, p := range routes.Pairs {
		if p.Transport == "" {
			unreachable[p.ToRank] = true
		}
	}
	ctx, cancel := context.WithTimeout(ctx, meeting+2*learn)
	defer cancel()
	if err := exchange(ctx, session, comm, unreachable, learn); err != nil {
		fmt.Fprintf(stderr, "ferry explain: rank %d: %v\n", comm.Rank(), err)
	}
	return nil
}

// exchange exchanges messages with all ranks except the unreachable ones, which skip this rank too, because a
// transport must reach in both directions.
func exchange(ctx context.Context, session *mpi.Session, comm *mpi.Comm, unreachable map[int]bool, learn time.Duration) error {
	for i := range comm.Size() {
		to := (comm.Rank() + i) % comm.Size()
		from := (comm.Rank() - i + comm.Size()) % comm.Size()
		if unreachable[to] {
			to = mpi.ProcNull
		}
		if unreachable[from] {
			from = mpi.ProcNull
		}
		if _, err := comm.Sendrecv(ctx, []byte{0}, to, 0, make([]byte, 1), from, 0); err != nil {
			return err
		}
	}
	// The paths are open now. Explain queries them while all ranks are connected.
	if _, err := session.Explain(ctx); err != nil || len(unreachable) > 0 {
		return err
	}
	if err := large(ctx, comm, learn); err != nil {
		return err
	}
	for range 2 { // Collective segments open at the second collective.
		if err := mpi.Barrier(ctx, comm); err != nil {
			return err
		}
	}
	return nil
}
