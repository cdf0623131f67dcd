// Command instructions counts the processor's instructions per message of 8
// bytes under each policy of communicator ids, through ob1 over shared memory and
// through cm over the kit's network in memory, and prints a row of JSON for each:
// after the first messages the policies must cost the same. `make instructions`
// runs it.
//
// Counters of the hardware are not to be had on every machine, and times drift.
// So valgrind's callgrind counts, in a process that plays two ranks on one
// goroutine: each rank has its own engine and modules, and a receive begins when its message is there, so that nobody waits and all runs
// execute the same code. The job runs with N ping-pongs and with twice as many:
// the difference is what N ping-pongs cost, and start and end fall out.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strconv"
	"syscall"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/self"
	"github.com/ferrympi/ferry/btl/shm"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/cm"
	"github.com/ferrympi/ferry/pml/ob1"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// Row is what is counted for one PML and policy.
type Row struct {
	PML          string  `json:"pml"`
	Policy       string  `json:"policy"`
	Instructions float64 `json:"instructions"` // of one message, from Send to Recv
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "instructions:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	n := flag.Int("n", 50000, "ping-pongs `N`, and twice as many")
	over := flag.String("pml", "", "count this `PML` only: ob1 or cm")
	work := flag.String("work", "", "be the process that is counted, under this `POLICY`")
	flag.Parse()
	if flag.NArg() > 0 || *n < 1 {
		return fmt.Errorf("want -n of at least 1, and no arguments")
	}
	if *work != "" {
		return play(ctx, *over, *work, *n)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, name := range []string{"ob1", "cm"} {
		if *over != "" && *over != name {
			continue
		}
		for _, policy := range []string{"agree", "gather", "lazy"} {
			once, err := count(ctx, self, name, policy, *n)
			if err != nil {
				return err
			}
			twice, err := count(ctx, self, name, policy, 2**n)
			if err != nil {
				return err
			}
			row := Row{PML: name, Policy: policy, Instructions: float64(twice-once) / float64(messages**n)}
			if err := json.NewEncoder(os.Stdout).Encode(row); err != nil {
				return err
			}
		}
	}
	return nil
}

// count returns how many instructions a process with n ping-pongs executes.
func count(ctx context.Context, self, over, policy string, n int) (int64, error) {
	cmd := exec.CommandContext(ctx, "valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
		self, "-pml", over, "-work", policy, "-n", strconv.Itoa(n))
	// One thread runs Go code at a time, and neither a collection of garbage comes
	// between nor a signal of the scheduler, which callgrind 3.19 does not survive.
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%s: %w: %s", cmd, err, out)
	}
	return parse(out)
}

var collected = regexp.MustCompile(`(?m)^==\d+== Collected : (\d+)$`)

// parse finds callgrind's sum in what it says at the end.
func parse(out []byte) (int64, error) {
	m := collected.FindAllSubmatch(out, -1)
	if len(m) != 1 {
		return 0, fmt.Errorf("no callgrind total in %q", out)
	}
	return strconv.ParseInt(string(m[0][1]), 10, 64)
}

const (
	messages = 2    // of a ping-pong
	warmup   = 1000 // ping-pongs, in which the ids are exchanged and memory is touched
)

// play is the process that is counted: n ping-pongs of 8 bytes between two ranks.
func play(ctx context.Context, over, policy string, n int) (err error) {
	p, err := cid.ParsePolicy(policy)
	if err != nil {
		return err
	}
	var stack pmltest.Stack
	switch over {
	case "ob1":
		stack = pmltest.Stack{PML: ob1.Component(), BTLs: []btl.Component{self.Component(), shm.Component()}}
	case "cm":
		stack = pmltest.Stack{PML: cm.Component(), MTL: mtltest.NewMemory(mtltest.Options{}).Component()}
	default:
		return fmt.Errorf("-pml %s: want ob1 or cm", over)
	}
	w, err := pmltest.NewWorld(stack, 2)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	comms, err := w.Comm(p)
	if err != nil {
		return err
	}
	buf := pml.Buffer{Bytes: make([]byte, 8)}
	for range warmup + n {
		for from := range comms {
			if err := comms[from].Send(ctx, buf, 1-from, 1, pml.PointToPoint, pml.Standard); err != nil {
				return err
			}
			if _, err := comms[1-from].Recv(ctx, buf, from, 1, pml.PointToPoint); err != nil {
				return err
			}
		}
	}
	for _, c := range comms {
		c.Close()
	}
	return nil
}
