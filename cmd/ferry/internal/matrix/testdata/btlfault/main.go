// Command btlfault is a plugin: btl/tcp, which breaks its promises as the first argument says; or a transport that is for a process
// itself only.
package main

import (
	"fmt"
	"os"

	"github.com/ferrympi/ferry/btl/btlfault"
	"github.com/ferrympi/ferry/btl/btltest"
	"github.com/ferrympi/ferry/btl/tcp"
	"github.com/ferrympi/ferry/plugin"
)

var plans = map[string]btlfault.Plan{
	"sound":     {},
	"drop":      {Seed: 1, Drop: 20},
	"duplicate": {Seed: 1, Duplicate: 20},
	"corrupt":   {Seed: 1, Corrupt: 20},
	"hang":      {HangAfter: 20},
	"hang_open": {HangOpen: true},
	"crash":     {CrashAfter: 20},
}

func main() {
	if os.Args[1] == "alone" {
		if plugin.Serve(btltest.Null()) != nil {
			os.Exit(1)
		}
		return
	}
	if err := plugin.Serve(btlfault.Wrap(tcp.Component(), plans[os.Args[1]])); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
