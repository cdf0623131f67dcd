// Command testreport converts the events of `go test -json` on standard input into a readable
// report. It prints the line of a package when the package ends. The summary has the failures with
// their output, the skipped tests by reason, and the packages in go test's own lines.
//
// scripts/test runs it over several commands. It imports the standard library only.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	slowest := flag.Int("slowest", 0, "number of packages in the closing lines, the slowest first; 0: all")
	flag.Parse()
	// An interrupt stops the tests. The report covers those that ran.
	signal.Ignore(os.Interrupt)
	r := newReport(os.Stdout, *slowest)
	err := r.readEvents(os.Stdin)
	r.summarize()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport: ", err)
	}
	if err != nil || r.hasFailures() {
		os.Exit(1)
	}
}
