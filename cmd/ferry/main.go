// Ferry starts programs as ranks of a job, shows the transports of their
// messages with the reasons, and measures them. `ferry help` lists the commands.
package main

import (
	"context"
	"os"

	"github.com/ferrympi/ferry/cmd/ferry/internal/cli"
)

func main() { os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stderr)) }
