// Btl-udp is the transport as a plugin, a process beside each rank whose
// configuration names it.
package main

import (
	"fmt"
	"os"

	"github.com/ferrympi/ferry/plugin"

	udp "example.com/vendor-udp"
)

func main() {
	if err := plugin.Serve(udp.Component()); err != nil {
		fmt.Fprintln(os.Stderr, "btl-udp:", err)
		os.Exit(1)
	}
}
