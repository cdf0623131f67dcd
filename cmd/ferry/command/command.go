// Package command is the command ferry over other components. A program of a vendor or a
// user has ferry's commands, and its ranks use the program's components.
//
//	func main() { os.Exit(command.Main(Registry())) }
//
// `ferry build` writes such a program, and `ferry component register` the function Registry.
package command

import (
	"context"
	"os"

	"github.com/ferrympi/ferry/cmd/ferry/internal/cli"
	"github.com/ferrympi/ferry/cmd/ferry/internal/settings"
	"github.com/ferrympi/ferry/framework"
)

// Main runs ferry's command line over the components in registry, which it does not
// change, and returns the exit status. Commands that need ranks start this same program. It
// is meant to be called once in a process.
func Main(registry *framework.Registry) int {
	settings.Use(registry)
	return cli.Main(context.Background(), os.Args[1:], os.Stderr)
}
