package component

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferrympi/ferry/cmd/ferry/internal/build"
	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/framework"
)

const checkLong = `Run the kits of the contract over a BTL of another module: btltest over the
transport, and pmltest over ob1 on top of it. They run in a ferry that is built
for it, as ferry matrix runs them: each case in a process that may crash or
hang. PACKAGE is as for ferry build.`

func checkCommand() *cobra.Command {
	var o build.Options
	var junit, json, cases string
	cmd := &cobra.Command{
		Use:     "check PACKAGE[@VERSION]|DIR",
		Short:   "Run the kits over a component of another module",
		Long:    checkLong,
		Example: "  ferry component check ./udp --junit report.xml",
		Args:    cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	f.StringVar(&junit, "junit", "", "write the report as JUnit's XML to `FILE`, too")
	f.StringVar(&json, "json", "", "write the report as JSON to `FILE`, too")
	f.StringVar(&cases, "cases", "^(btltest|pmltest)/", "run the cases whose names match `REGEXP`")
	f.StringVar(&o.Ferry, "ferry", "", "take ferry's sources from `DIR`, in place of this ferry's version")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dir, err := os.MkdirTemp("", "ferry-check-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		ctx, stop := signal.NotifyContext(cmd.Context(), exit.Signals()...)
		defer stop()
		o.With, o.Output = args, filepath.Join(dir, "ferry")
		infos, err := build.Build(ctx, o)
		if err != nil {
			return err
		}
		if infos[0].Kind != framework.BTL {
			return exit.Usagef("%s is a component of kind %s; its kit runs in its own tests, as docs/writing-a-component.md says", infos[0].Name, infos[0].Kind)
		}
		matrix := []string{"matrix", "--components", "ob1+" + infos[0].Name, "--cases", cases}
		for flag, file := range map[string]string{"--junit": junit, "--json": json} {
			if file != "" {
				matrix = append(matrix, flag, file)
			}
		}
		return run(ctx, cmd, o.Output, matrix...)
	}
	return cmd
}

// patience is how long a command that was told to stop may take.
const patience = 10 * time.Second

// run runs a command in the place of this one.
func run(ctx context.Context, like *cobra.Command, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = like.OutOrStdout(), like.ErrOrStderr()
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = patience
	err := cmd.Run()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok && ended.Exited() {
		return exit.Status(ended.ExitCode()) // it has said why
	}
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	return nil
}
