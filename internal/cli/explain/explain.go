// Package explain is `ferry explain`: it starts ranks of ferry itself, lets them
// meet, and shows what selection decided, for each pair of ranks and for each
// component. `ferry run --explain` shows the same of any program.
package explain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferrympi/ferry/internal/cli/exit"
	"github.com/ferrympi/ferry/internal/cli/settings"
	"github.com/ferrympi/ferry/internal/launch"
	"github.com/ferrympi/ferry/mpi"
)

// limit is for a job that only has to meet; a hang is a fault.
const limit = time.Minute

// Command returns the command.
func Command() *cobra.Command {
	var ranks int
	var asJSON, isRank bool
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Show what would carry messages between ranks, and why nothing else",
		Args:  cobra.NoArgs,
	}
	f := cmd.Flags()
	f.IntVarP(&ranks, "n", "n", 2, "number of ranks `N`")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	f.BoolVar(&isRank, "rank", false, "be one of the ranks")
	_ = f.MarkHidden("rank") // fails only for a flag that isn't there
	set := settings.Flag(f)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exit.Usagef("%w", err) })
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if isRank {
			return meet(cmd.Context())
		}
		if ranks < 1 {
			return exit.Usagef("-n %d: want at least 1 rank", ranks)
		}
		e, err := collect(cmd, ranks, *set)
		if err != nil {
			return err
		}
		if !asJSON {
			return e.Print(cmd.OutOrStdout())
		}
		enc := json.NewEncoder(cmd.OutOrStdout())
		enc.SetIndent("", "  ")
		return enc.Encode(e)
	}
	return cmd
}

// collect runs the ranks and merges what they hand in.
func collect(cmd *cobra.Command, ranks int, set []string) (Explanation, error) {
	env, err := settings.Prepare(cmd.Context(), append(set, Request))
	if err != nil {
		return Explanation{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return Explanation{}, fmt.Errorf("find this program: %w", err)
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	res, err := launch.Job{
		Program: self, Args: []string{"explain", "--rank"}, N: ranks, Env: env,
		Stdout: cmd.ErrOrStderr(), Stderr: cmd.ErrOrStderr(), Timeout: limit,
	}.Run(ctx)
	if err != nil {
		return Explanation{}, err
	}
	if res.Status != 0 {
		return Explanation{}, exit.Status(res.Status) // the rank has said why
	}
	return Merge(res.Reports)
}

// meet is what a rank does: everyone exchanges a message with everyone, so that
// each path is really opened.
func meet(ctx context.Context) (err error) {
	session, err := mpi.OpenSession(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	world, err := session.Group(ctx, "mpi://WORLD")
	if err != nil {
		return err
	}
	comm, err := mpi.CommFromGroup(ctx, world, "ferry.explain")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, comm.Close()) }()
	send, recv := make([]byte, 1), make([]byte, 1)
	for i := range comm.Size() {
		to := (comm.Rank() + i) % comm.Size()
		from := (comm.Rank() - i + comm.Size()) % comm.Size()
		if _, err := comm.Sendrecv(ctx, send, to, 0, recv, from, 0); err != nil {
			return err
		}
	}
	return mpi.Barrier(ctx, comm)
}
