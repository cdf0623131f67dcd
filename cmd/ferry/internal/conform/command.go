package conform

import (
	"fmt"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
)

// Command returns `ferry conform`, which runs the suite as one of the ranks of a
// job. It is hidden: `ferry matrix` is made of it.
func Command() *cobra.Command {
	var only string
	cmd := &cobra.Command{
		Use:     "conform",
		Short:   "Run the conformance suite as a rank",
		Example: "  ferry run -n 4 ferry conform --only '^communicator/'",
		Hidden:  true,
		Args:    cobra.NoArgs,
	}
	cmd.Flags().StringVar(&only, "only", "", "run the cases whose names match `REGEXP`")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exit.Usagef("%w", err) })
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		match, err := regexp.Compile(only)
		if err != nil {
			return exit.Usagef("--only: %w", err)
		}
		var cases []Case
		for _, c := range Cases() {
			if match.MatchString(c.Name) {
				cases = append(cases, c)
			}
		}
		if len(cases) == 0 {
			return exit.Usagef("--only %s: no case has such a name", only)
		}
		return run(cmd, cases)
	}
	return cmd
}

// run runs the cases. Rank 0 prints the outcomes, and every rank what it failed with.
func run(cmd *cobra.Command, cases []Case) error {
	out, failed := cmd.OutOrStdout(), 0
	err := Run(cmd.Context(), cases, Limit, func(r Result) {
		if r.Status == Fail {
			failed++
		}
		if r.Rank == 0 {
			line := fmt.Sprintf("%-4s  %-60s  MPI-4.1 %s", r.Status, r.Case.Name, r.Case.Section)
			if r.Status == Fail {
				line += fmt.Sprintf("  failed in ranks %v", r.Ranks)
			}
			fmt.Fprintln(out, line)
		}
		if r.Err != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "rank %d: %s: %v\n", r.Rank, r.Case.Name, r.Err)
		}
	}, settings.Session()...)
	if err != nil {
		return err
	}
	if failed > 0 {
		return exit.Status(exit.Failed) // the lines have said why
	}
	return nil
}
