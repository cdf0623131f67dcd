// Ferry starts programs as ranks of a job, shows what would carry their
// messages and why, and measures it. `ferry help` lists the commands.
package main

import (
	"context"
	"os"

	"github.com/ferrympi/ferry/cmd/ferry/internal/cli"
)

func main() { os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stderr)) }
