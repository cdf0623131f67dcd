package matrix

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/worker"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
)

// reports is the descriptor on which a worker reports: the first of launch.Job's
// Files.
const reports = 3

// workerCommand is the hidden command of the processes that run cases.
func workerCommand() *cobra.Command {
	return &cobra.Command{
		Use: "worker TASK", Short: "Run cases for ferry matrix", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out := os.NewFile(reports, "reports")
			if _, err := out.Stat(); err != nil {
				return fmt.Errorf("only ferry matrix starts workers: %w", err)
			}
			// What a case starts has no business with the reports.
			syscall.CloseOnExec(reports)
			ctx, stop := interruptible(cmd.Context(), syscall.SIGTERM)
			defer stop()
			reg := settings.Registry()
			values, _, err := settings.Load(reg, nil)
			if err != nil {
				return err
			}
			err = worker.Work(ctx, reg, values, args[0], out, cmd.ErrOrStderr(), settings.Session()...)
			return errors.Join(err, out.Close())
		},
	}
}
