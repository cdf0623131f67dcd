package component

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ferrympi/ferry/cmd/ferry/internal/build"
	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
	"github.com/ferrympi/ferry/config"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/plugin/host"
)

const checkLong = `Run the kits of the contract over a BTL of another module, or over a plugin:
btltest over the transport, and pmltest over ob1 on top of it. They run as ferry
matrix runs them: each case in a process that may crash or hang. A transport that
is for a process itself only has no pmltest, and the cases of ferry matrix for
one rank instead.

PACKAGE and DIR are as for ferry build: a ferry is built for the check. COMMAND
is the file of a plugin, in any language; what follows -- are its arguments.`

func checkCommand() *cobra.Command {
	var o build.Options
	var junit, cases, name, protocol string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:     "check PACKAGE[@VERSION]|DIR|COMMAND [-- ARG...]",
		Short:   "Run the kits over a component of another module, or over a plugin",
		Long:    checkLong,
		Example: "  ferry component check ./udp --junit report.xml\n  ferry component check ./btl-udp -- -v",
		Args: func(cmd *cobra.Command, args []string) error {
			if n := cmd.ArgsLenAtDash(); n >= 0 {
				args = args[:n]
			}
			return cobra.ExactArgs(1)(cmd, args)
		},
	}
	f := cmd.Flags()
	f.StringVar(&junit, "junit", "", "write the report as JUnit's XML to `FILE`, too")
	var report settings.JSON
	report.Flag(f, "write the report as JSON")
	f.StringVar(&cases, "cases", "^(btltest|pmltest|conform/1)/", "run the cases whose names match `REGEXP`")
	f.DurationVar(&timeout, "timeout", 0, "the longest `TIME` that a case may take, in place of the quick suite's")
	f.StringVar(&name, "name", "", "what the plugin is called here; `NAME` follows from its file if it is not given")
	f.StringVar(&protocol, "protocol", "", "the control protocol of the plugin: `go-plugin|ferry`; go-plugin if it is not given")
	f.StringVar(&o.FerryDir, "ferry", "", "take ferry's sources from `DIR`, in place of this ferry's version")
	settings.Complete(cmd, map[string]cobra.CompletionFunc{
		"protocol": settings.OneOf("go-plugin", "ferry"), "ferry": settings.Folder, "cases": settings.None, "name": settings.None,
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dir, err := os.MkdirTemp("", "ferry-check-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		ctx, stop := exit.NotifyContext(cmd.Context(), exit.Signals()...)
		defer stop()
		c := checked{workDir: dir, name: name, protocol: protocol}
		if isFile(args[0]) {
			err = c.plugin(args)
		} else if len(args) > 1 || name != "" || protocol != "" {
			err = exit.Usagef("%s is not the file of a plugin: it takes neither --name, --protocol nor arguments", args[0])
		} else {
			o.WithPackages = args
			err = c.build(ctx, o)
		}
		if err != nil {
			return err
		}
		matrix := []string{"matrix", "--components", "ob1+" + c.name, "--cases", cases, "--timeout", timeout.String()}
		for flag, file := range map[string]string{"--junit=": junit, "--json=": report.String()} {
			if file != "" {
				matrix = append(matrix, flag+file)
			}
		}
		return c.run(ctx, cmd, matrix...)
	}
	return cmd
}

// checked is a component under test, and the ferry that has it.
type checked struct {
	workDir, name string
	protocol      string // As in config.Plugin
	ferryPath     string
	env           []string
}

// build makes a ferry with the component compiled in.
func (c *checked) build(ctx context.Context, o build.Options) error {
	o.OutputPath = filepath.Join(c.workDir, "ferry")
	infos, err := build.Build(ctx, o)
	if err != nil {
		return err
	}
	if infos[0].Kind != framework.BTL {
		return exit.Usagef("%s is a component of kind %s; its kit runs in its own tests, as docs/writing-a-component.md says", infos[0].Name, infos[0].Kind)
	}
	c.ferryPath, c.name = o.OutputPath, infos[0].Name
	return nil
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

// plugin writes a configuration file with the plugin, which replaces the user's file.
func (c *checked) plugin(command []string) (err error) {
	entry := config.Plugin{Kind: framework.BTL, Name: c.name, Command: slices.Clone(command), Protocol: c.protocol}
	if entry.Name == "" {
		base := strings.TrimPrefix(filepath.Base(command[0]), "btl-")
		entry.Name = strings.NewReplacer("-", "_", ".", "_").Replace(base)
	}
	if entry.Command[0], err = filepath.Abs(command[0]); err != nil {
		return err
	}
	if err := host.Register(settings.Registry(), entry); err != nil {
		return exit.Usagef("%s: %w; --name gives it another one", command[0], err)
	}
	if v := host.Component(entry).Probe(context.Background(), nil); v.Status != framework.StatusUsable {
		return exit.Usagef("%s: %s", command[0], v.Why())
	}
	text, err := json.Marshal(map[string]any{"plugins": []any{map[string]any{"kind": entry.Kind, "name": entry.Name, "command": entry.Command, "protocol": entry.Protocol}}})
	if err != nil {
		return err
	}
	file := filepath.Join(c.workDir, "config.yaml") // which takes JSON
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	c.name, c.env = entry.Name, []string{config.FileVariable + "=" + file}
	c.ferryPath, err = os.Executable()
	return err
}

// patience is the time for a command to end after it was asked to stop.
const patience = 10 * time.Second

// run runs that ferry in the place of this one.
func (c *checked) run(ctx context.Context, like *cobra.Command, args ...string) error {
	cmd := exec.CommandContext(ctx, c.ferryPath, args...)
	cmd.Env = append(os.Environ(), c.env...)
	cmd.Stdout, cmd.Stderr = like.OutOrStdout(), like.ErrOrStderr()
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = patience
	err := cmd.Run()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok && ended.Exited() {
		return exit.Status(ended.ExitCode()) // The command has printed the reason.
	}
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	return nil
}
