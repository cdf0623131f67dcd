// Command testreport turns the events of `go test -json` on standard input into a report for
// people. A package's line is printed as soon as the package ends. The summary has the failures
// with their output, the skipped tests by reason, and the packages in go test's own lines.
//
// scripts/test runs it over several commands. It stands on the standard library only.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	slowest := flag.Int("slowest", 0, "packages in the closing lines, the slowest ones; 0: all")
	flag.Parse()
	// An interrupt is for the tests: the report is about those that ran.
	signal.Ignore(os.Interrupt)
	r := newReport(os.Stdout, *slowest)
	err := r.read(os.Stdin)
	r.summarize()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport: ", err)
	}
	if err != nil || r.failed() {
		os.Exit(1)
	}
}
