package component

import (
	"cmp"
	"os"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/components/generate"
)

const registerLong = `Write a Go file with a function that makes a registry of the components in a
manifest, for a program of your own. The manifest is like ferry's
components.yaml; with "standard: true" it adds to the components that every
program has. The program opens its sessions with the registry:

    session, err := mpi.OpenSession(ctx, mpi.WithRegistry(Registry()))

Nothing is registered by importing a package.`

func registerCommand() *cobra.Command {
	var output string
	var p generate.Package
	cmd := &cobra.Command{
		Use:     "register [MANIFEST]",
		Short:   "Write a registry for a program, from its components.yaml",
		Long:    registerLong,
		Example: "  //go:generate ferry component register",
		Args:    cobra.MaximumNArgs(1),
	}
	f := cmd.Flags()
	f.StringVarP(&output, "output", "o", "components_gen.go", "the `FILE` to write")
	f.StringVar(&p.Name, "package", cmp.Or(os.Getenv("GOPACKAGE"), "main"), "the package's `NAME`; go generate knows it")
	f.StringVar(&p.Func, "func", "Registry", "the function's `NAME`")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		manifest := "components.yaml"
		if len(args) > 0 {
			manifest = args[0]
		}
		text, err := os.ReadFile(manifest)
		if err != nil {
			return err
		}
		code, err := generate.File(manifest, text, components.Standard(), p)
		if err != nil {
			return err
		}
		return renameio.WriteFile(output, code, 0o644)
	}
	return cmd
}
