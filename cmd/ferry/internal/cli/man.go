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
	"github.com/ferrympi/ferry/config"
)

// manCommand returns `ferry man`, which prints manual pages (man(7)) made from the help texts of this ferry.
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
			for _, c := range withSubcommands(root) {
				if err := os.WriteFile(filepath.Join(dir, pageName(c)+".1"), []byte(manual(c)), 0o666); err != nil {
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

// withSubcommands returns a command, and all commands below it that are not hidden.
func withSubcommands(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			all = append(all, withSubcommands(sub)...)
		}
	}
	return all
}

// pageName is the name of a command's page without the section, such as ferry-run.
func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// A manEntry is a term of a manual page with its explanation.
type manEntry struct{ term, text string }

// The environment and the files of all commands.
var (
	manEnvironment = []manEntry{
		{"FERRY_FRAMEWORK_COMPONENT_PARAM", "sets the parameter framework.component.param, as in FERRY_BTL_SHM_EAGER_LIMIT=8KiB. Files are weaker, and --set is stronger. ferry info --params lists the parameters."},
		{config.FileVariable, "names a file that is read in place of the user's file."},
		{"XDG_CONFIG_HOME, HOME", "have the user's file (see FILES)."},
		{"XDG_RUNTIME_DIR, TMPDIR", "have the sockets of running jobs. The default is /tmp."},
		{"COLUMNS", "is the width of tables. The default is that of the terminal, or 80."},
	}
	manFiles = []manEntry{
		{config.DefaultSiteFile, "parameters for all users of the machine."},
		{"$XDG_CONFIG_HOME/ferry/config.yaml, ~/.config/ferry/config.yaml", "parameters of the user. They replace those of the machine."},
		{"PREFIX/share/doc/ferry", "the pages that messages name, such as docs/troubleshooting.md. docs/configuration.md describes the files. The command is PREFIX/bin/ferry."},
	}
)

// related returns the names of the pages of the command above, of those below, and of the others at this level.
func related(c *cobra.Command) (names []string) {
	add := func(c *cobra.Command) { names = append(names, pageName(c)+"(1)") }
	if c.HasParent() {
		add(c.Parent())
		for _, sibling := range c.Parent().Commands() {
			if sibling != c && sibling.IsAvailableCommand() {
				add(sibling)
			}
		}
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			add(sub)
		}
	}
	return names
}

// manual is the page of a command.
func manual(c *cobra.Command) string {
	var b bytes.Buffer
	section := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, ".SH %s\n.nf\n%s\n.fi\n", name, roff(text)) // tables and paragraphs have their line ends
		}
	}
	entries := func(name string, all []manEntry) {
		fmt.Fprintf(&b, ".SH %s\n", name)
		for _, e := range all {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(e.term), roff(e.text))
		}
	}
	name := pageName(c)
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
	entries("ENVIRONMENT", manEnvironment)
	entries("FILES", manFiles)
	fmt.Fprintf(&b, ".SH SEE ALSO\n%s\n", roff(strings.Join(related(c), ", ")))
	return b.String()
}

// roff escapes backslashes, hyphens and lines that begin like requests.
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
