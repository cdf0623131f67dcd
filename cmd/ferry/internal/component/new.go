package component

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/cmd/ferry/internal/gotool"
	"github.com/ferrympi/ferry/framework"
)

const newLong = `Write a folder NAME with a Go module: a complete BTL between processes of one
node, over Unix datagrams, and tests that run the kits over it. Replace what it
does by your network, part by part, and run the kits again.
docs/writing-a-component.md walks through its code.`

// sources is the template of a new module: examples/vendor-btl, with NAME for the component.
//
//go:generate sh -c "for f in '' _test; do sed s/dgram/NAME/g ../../../../examples/vendor-btl/dgram${DOLLAR}f.go >btl/btl${DOLLAR}f.go.txt; done"
//go:embed btl
var sources embed.FS

func newCommand() *cobra.Command {
	var module, ferry string
	cmd := &cobra.Command{
		Use:     "new btl NAME",
		Short:   "Write a module with a component to begin with",
		Long:    newLong,
		Example: "  ferry component new btl acme --module example.com/acme",
		Args:    cobra.ExactArgs(2),
	}
	f := cmd.Flags()
	f.StringVar(&module, "module", "", "the module's `PATH`; example.com/NAME if it is not given")
	f.StringVar(&ferry, "ferry", "", "take ferry's sources from `DIR`, in place of this ferry's version")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		kind, name := args[0], args[1]
		if kind != string(framework.BTL) {
			return exit.Usagef("component new %s: only a btl can be written yet; docs/writing-a-component.md says how others begin", kind)
		}
		if !framework.ValidName(name) {
			return exit.Usagef("component new btl %s: want a lower case letter, then letters, digits and '_'", name)
		}
		if module == "" {
			module = "example.com/" + name
		}
		from, err := gotool.Find(ferry)
		if err != nil {
			return err
		}
		if err := write(name, module, from); err != nil {
			return err
		}
		ctx, stop := exit.NotifyContext(cmd.Context(), exit.Signals()...)
		defer stop()
		// The go command completes go.mod and go.sum.
		if _, err := (gotool.Go{Dir: name}).Run(ctx, "vet", "./..."); err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is a module with btl %s: now ferry component check ./%s\n", module, name, name)
		return err
	}
	return cmd
}

// write makes the folder, which must not exist.
func write(name, module string, from gotool.Sources) error {
	if err := os.Mkdir(name, 0o777); err != nil {
		return err
	}
	files := map[string]string{
		"go.mod": fmt.Sprintf("module %s\n\ngo %s\n\n%s", module, gotool.GoVersion, from.Require()),
		"go.sum": string(gotool.Sums(from.Dir)),
	}
	for _, suffix := range []string{".go", "_test.go"} {
		text, err := sources.ReadFile("btl/btl" + suffix + ".txt")
		if err != nil {
			return err
		}
		files[name+suffix] = strings.ReplaceAll(string(text), "NAME", name)
	}
	for file, text := range files {
		if err := os.WriteFile(filepath.Join(name, file), []byte(text), 0o666); err != nil {
			return err
		}
	}
	return nil
}
