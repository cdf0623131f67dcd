// Command scale runs the creation of communicators (package assembly/wireup) in a model of a large job: a world, a sparse world of SHARED and
// ROOTS, and every second rank. It prints rounds, messages, bytes, simulated time and the bytes that are kept, and checks them.
//
//	go run ./test/scale -nodes 2048 -ppn 96
//	go run ./test/scale -nodes 64 -ppn 8 -faults 100 -seed 1
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/ferrympi/ferry/assembly/wireup/wireuptest"
)

// Limits of the model.
const (
	maxNodes     = 8192
	maxProcesses = 1 << 20
)

// options are the flags.
type options struct {
	nodeCount, procsPerNode int
	faultyCreations         int
	seed                    uint64
	docsDir                 string
	machine                 wireuptest.Machine
}

func main() {
	o, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(2)
	}
	switch {
	case o.docsDir != "":
		err = runDocs(os.Stdout, o)
	case o.faultyCreations > 0:
		err = runFaults(os.Stdout, o)
	default:
		err = runSizes(os.Stdout, o)
	}
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	fmt.Println("ok")
}

// parse reads the flags. Errors are those of the usage.
func parse(args []string, out io.Writer) (options, error) {
	o := options{machine: wireuptest.Default}
	flags := flag.NewFlagSet("scale", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.IntVar(&o.nodeCount, "nodes", 64, "number of nodes")
	flags.IntVar(&o.procsPerNode, "ppn", 8, "processes per node")
	flags.IntVar(&o.faultyCreations, "faults", 0, "number of creations of a world with a fault, in place of the sizes")
	flags.Uint64Var(&o.seed, "seed", 1, "seed of faults and orders")
	flags.StringVar(&o.docsDir, "docs", "", "write the table of scale.md in this folder, and plots/scale.svg, in place of the sizes")
	flags.Var((*network)(&o.machine.Node), "node", "LogGP of a node: latency,overhead,gap,ns per byte")
	flags.Var((*network)(&o.machine.Network), "network", "LogGP of the network")
	flags.Var((*network)(&o.machine.Launcher), "launcher", "LogGP of the bootstrap")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.nodeCount < 1 || o.nodeCount > maxNodes:
		return o, fmt.Errorf("-nodes %d: use 1 to %d", o.nodeCount, maxNodes)
	case o.procsPerNode < 1 || o.nodeCount*o.procsPerNode > maxProcesses:
		return o, fmt.Errorf("-ppn %d: use 1 to %d with %d nodes", o.procsPerNode, maxProcesses/o.nodeCount, o.nodeCount)
	case o.faultyCreations < 0:
		return o, fmt.Errorf("-faults %d: use 0 or more", o.faultyCreations)
	}
	return o, nil
}

// network is a flag of LogGP parameters.
type network wireuptest.LogGP

func (n *network) String() string {
	return fmt.Sprintf("%v,%v,%v,%v", n.Latency, n.Overhead, n.Gap, n.PerByte)
}

func (n *network) Set(text string) error {
	fields := strings.Split(text, ",")
	if len(fields) != 4 {
		return errors.New("use latency,overhead,gap,ns per byte, such as 2us,300ns,200ns,0.04")
	}
	for i, field := range []*time.Duration{&n.Latency, &n.Overhead, &n.Gap} {
		d, err := time.ParseDuration(fields[i])
		if err != nil || d < 0 {
			return fmt.Errorf("%q: want a time of 0 or more, such as 2us", fields[i])
		}
		*field = d
	}
	perByte, err := strconv.ParseFloat(fields[3], 64)
	if err != nil || perByte < 0 || perByte > 1e6 {
		return fmt.Errorf("%q: want a number of nanoseconds, such as 0.04", fields[3])
	}
	n.PerByte = perByte
	return nil
}
