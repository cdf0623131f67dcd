// Command instructions counts the instructions per message of 8 bytes under each policy of communicator ids, through ob1
// over shared memory and through cm over the in-memory network of its kit, and prints a row of JSON for each. After the
// first messages the policies must cost the same. `make instructions` runs it.
//
// Hardware counters are not available on every machine, and times drift, so valgrind's callgrind counts. The counted
// process runs two ranks with engines and modules of their own on one goroutine. A receive begins after its message has
// arrived, so no rank waits and all runs execute the same code. The difference between runs with N and 2N ping-pongs is
// the cost of N ping-pongs without startup and shutdown.
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

// Row is the result of one PML and policy.
type Row struct {
	PML    string `json:"pml"`
	Policy string `json:"policy"`
	// Per message, from Send to Recv.
	Instructions float64 `json:"instructions"`
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
	pmlName := flag.String("pml", "", "count this `PML` only: ob1 or cm")
	policy := flag.String("work", "", "run as the counted process with this `POLICY`")
	flag.Parse()
	if flag.NArg() > 0 || *n < 1 {
		return errors.New("invalid arguments; want -n of at least 1 and no operands")
	}
	if *policy != "" {
		return runPingPongs(ctx, *pmlName, *policy, *n)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, name := range []string{"ob1", "cm"} {
		if *pmlName != "" && *pmlName != name {
			continue
		}
		for _, counted := range []string{"agree", "gather", "lazy"} {
			once, err := countInstructions(ctx, self, name, counted, *n)
			if err != nil {
				return err
			}
			twice, err := countInstructions(ctx, self, name, counted, 2**n)
			if err != nil {
				return err
			}
			row := Row{PML: name, Policy: counted, Instructions: float64(twice-once) / float64(messagesPerPingPong**n)}
			if err := json.NewEncoder(os.Stdout).Encode(row); err != nil {
				return err
			}
		}
	}
	return nil
}

// countInstructions runs a process with n ping-pongs under callgrind.
func countInstructions(ctx context.Context, self, name, policy string, n int) (int64, error) {
	cmd := exec.CommandContext(ctx, "valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
		self, "-pml", name, "-work", policy, "-n", strconv.Itoa(n))
	// One thread runs Go code, without garbage collection and preemption signals. Callgrind 3.19 crashes on the latter.
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%s: %w: %s", cmd, err, out)
	}
	return parseTotal(out)
}

var collected = regexp.MustCompile(`(?m)^==\d+== Collected : (\d+)$`)

// parseTotal returns the total in callgrind's output.
func parseTotal(out []byte) (int64, error) {
	m := collected.FindAllSubmatch(out, -1)
	if len(m) != 1 {
		return 0, fmt.Errorf("no callgrind total in %q", out)
	}
	return strconv.ParseInt(string(m[0][1]), 10, 64)
}

const (
	messagesPerPingPong = 2
	// warmup ping-pongs exchange the ids and touch memory.
	warmup = 1000
)

// runPingPongs is the counted process. It runs n ping-pongs of 8 bytes between two ranks.
func runPingPongs(ctx context.Context, name, policy string, n int) (err error) {
	p, err := cid.ParsePolicy(policy)
	if err != nil {
		return err
	}
	var stack pmltest.Stack
	switch name {
	case "ob1":
		stack = pmltest.Stack{PML: ob1.Component(), BTLs: []btl.Component{self.Component(), shm.Component()}}
	case "cm":
		stack = pmltest.Stack{PML: cm.Component(), MTL: mtltest.NewMemory(mtltest.Options{}).Component()}
	default:
		return fmt.Errorf("-pml %s: unknown PML; use ob1 or cm", name)
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
