// Package cli combines ferry's commands, each from its package below. They share settings, exit statuses and the
// launcher, and never end the process themselves.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ferrympi/ferry/cmd/ferry/internal/bench"
	"github.com/ferrympi/ferry/cmd/ferry/internal/build"
	"github.com/ferrympi/ferry/cmd/ferry/internal/component"
	"github.com/ferrympi/ferry/cmd/ferry/internal/conform"
	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/cmd/ferry/internal/explain"
	"github.com/ferrympi/ferry/cmd/ferry/internal/info"
	"github.com/ferrympi/ferry/cmd/ferry/internal/jobs"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix"
	"github.com/ferrympi/ferry/cmd/ferry/internal/run"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
	"github.com/ferrympi/ferry/cmd/ferry/internal/version"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/limits"
)

// Main runs the command line args (without the program's name) and returns the
// exit status. Errors go to stderr, in one line that begins with the command.
func Main(ctx context.Context, args []string, stderr io.Writer) int {
	// Errors before a command runs are usage errors.
	started := false
	root := &cobra.Command{
		Use:           "ferry",
		Short:         "Message passing for Go with MPI-4 Sessions",
		Version:       version.String(),
		SilenceErrors: true, SilenceUsage: true,
		Args: cobra.ArbitraryArgs, // RunE reports them.
		PersistentPreRunE: func(*cobra.Command, []string) error {
			started = true
			if err := (limits.Need{Files: 3}).Check(); err != nil { // for the runtime's poller, and a file
				return err
			}
			return settings.Plug()
		},
	}
	root.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return root.Help()
		}
		return unknownCommand(root, args[0])
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		switch unknown, ok := errors.AsType[*pflag.NotExistError](err); {
		case cmd != root || !ok:
			return run.FlagError(cmd.Flags(), err)
		case !strings.HasPrefix(args[0], "-"):
			return unknownCommand(root, args[0])
		default:
			return exit.Usagef("unknown flag %s: flags come after the command, as in ferry run -n 4 PROGRAM", run.DashedFlag(unknown.GetSpecifiedName()))
		}
	})
	root.SetHelpCommand(helpCommand(root))
	root.AddCommand(run.Command(), jobs.PsCommand(), jobs.ResizeCommand(), info.Command(), explain.Command(), bench.Command(), conform.Command(), matrix.Command(), build.Command(), component.Command(), versionCommand(), manCommand(root))
	root.InitDefaultCompletionCmd(args...)
	completeListsInBash(root)
	for _, group := range root.Commands() {
		if group.HasSubCommands() && !group.Runnable() {
			group.DisableFlagsInUseLine = true // It has only subcommands.
			group.RunE = func(cmd *cobra.Command, args []string) error {
				if len(args) == 0 {
					return cmd.Help()
				}
				return unknownCommand(cmd, args[0])
			}
		}
	}
	root.SetErr(stderr)
	root.SetArgs(settings.JoinJSON(run.Normalize(args)))

	ctx, interruption := exit.WithInterruption(ctx)
	cmd, err := root.ExecuteContextC(ctx)
	status, message := exit.Of(err)
	if err != nil && !started {
		status = exit.Usage
		if !strings.HasSuffix(message, "?") {
			message += ";"
		}
		message += fmt.Sprintf(" see %s --help", cmd.CommandPath())
	}
	if message != "" {
		fmt.Fprintf(stderr, "%s: %s\n", cmd.CommandPath(), message)
	}
	return interruption.Status(status)
}

// helpCommand returns `ferry help`, which fails for unknown commands.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about a command",
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return commandNames(root), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return unknownCommand(root, strings.Join(args, " "))
			}
			return cmd.Help()
		},
	}
}

func unknownCommand(root *cobra.Command, name string) error {
	known := commandNames(root)
	if near := framework.Nearest(name, known); framework.Near(name, near) {
		return exit.Usagef("unknown command %s; did you mean %s?", name, near)
	}
	return exit.Usagef("unknown command %s; the commands are %s", name, strings.Join(known, ", "))
}

func commandNames(root *cobra.Command) (all []string) {
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			all = append(all, c.Name())
		}
	}
	return all
}

func versionCommand() *cobra.Command {
	var asJSON settings.JSON
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of ferry",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			output, err := asJSON.Open(cmd.OutOrStdout())
			if err != nil {
				return err
			}
			defer output.Close()
			return output.Write(struct {
				Version   string            `json:"version"`
				Libraries []version.Library `json:"libraries"`
			}{version.String(), version.Libraries()}, func() error {
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "ferry version %s\n", version.String())
				return err
			})
		},
	}
	asJSON.Flag(cmd.Flags(), "write the version and those of the libraries as JSON")
	return cmd
}
