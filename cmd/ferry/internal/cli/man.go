package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ferrympi/ferry/cmd/ferry/internal/version"
)

// manCommand is `ferry man`: manual pages (man(7)) made of what --help shows, so that they
// are those of the ferry that is installed.
func manCommand(root *cobra.Command) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:     "man [COMMAND]",
		Short:   "Print the manual page of a command, or write all",
		Example: "  ferry man run | man -l -\n  ferry man --dir ~/.local/share/man/man1",
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return commandNames(root), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return unknownCommand(root, strings.Join(args, " "))
			}
			if dir == "" {
				_, err := io.WriteString(cmd.OutOrStdout(), manual(about))
				return err
			}
			for _, c := range append([]*cobra.Command{root}, root.Commands()...) {
				name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
				if c != root && !c.IsAvailableCommand() {
					continue
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(manual(c)), 0o666); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "write the pages of all commands to files in `DIRECTORY`, ferry.1 and so on")
	_ = cmd.MarkFlagDirname("dir") // fails only for a flag that isn't there
	return cmd
}

// manual is the page of a command.
func manual(c *cobra.Command) string {
	var b bytes.Buffer
	section := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, ".SH %s\n.nf\n%s\n.fi\n", name, roff(text)) // tables and paragraphs have their line ends
		}
	}
	name := strings.ReplaceAll(c.CommandPath(), " ", "-")
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"ferry %s\"\n.SH NAME\n%s \\- %s\n", strings.ToUpper(name), version.String(), roff(name), roff(c.Short))
	section("SYNOPSIS", c.UseLine())
	section("DESCRIPTION", c.Long)
	if c.HasAvailableSubCommands() {
		b.WriteString(".SH COMMANDS\n")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(sub.CommandPath()), roff(sub.Short))
			}
		}
	}
	c.InitDefaultHelpFlag()
	if c.HasAvailableLocalFlags() {
		b.WriteString(".SH OPTIONS\n")
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden {
				return
			}
			value, usage := pflag.UnquoteUsage(f)
			names := "--" + f.Name
			if f.Shorthand == f.Name {
				names = "-" + f.Name
			} else if f.Shorthand != "" {
				names = "-" + f.Shorthand + ", " + names
			}
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(strings.TrimSpace(names+" "+value)), roff(usage))
		})
	}
	section("EXAMPLES", c.Example)
	return b.String()
}

// roff escapes text: backslashes, hyphens that are to be typed, and lines that would be
// requests.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(strings.TrimRight(text, "\n"))
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
