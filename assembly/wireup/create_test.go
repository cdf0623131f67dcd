package wireup_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/assembly/wireup"
	"github.com/ferrympi/ferry/assembly/wireup/wireuptest"
	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// even returns a job with the same number of processes on each node.
func even(nodes, each int) wireuptest.Job {
	var m bootstrap.NodeMap
	for n := range nodes {
		m = append(m, bootstrap.NodeRun{First: uint32(n * each), Count: uint32(each), Node: uint32(n)})
	}
	return wireuptest.Job{Machine: wireuptest.Default, NodeMap: m, Timeout: 10 * time.Second,
		Group: wireuptest.Ranks(0, 1, nodes*each)}
}

func TestCreate_WholeGroup_AllHaveOneTable(t *testing.T) {
	for _, size := range [][2]int{{1, 3}, {2, 1}, {2, 2}, {3, 2}, {5, 3}, {64, 1}, {65, 2}, {200, 1}, {4097, 1}} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			job := even(size[0], size[1])
			r := job.Run()
			for i, o := range r.Outcomes {
				if o.Err != nil {
					t.Fatalf("member %d: %v", i, o.Err)
				}
			}
			if err := job.Check(r); err != nil {
				t.Fatal(err)
			}
		})
	}
}

var (
	orders = flag.Int("orders", 10_000, "number of random orders")
	seed   = flag.Uint64("orders.seed", 1, "seed of the random orders")
)

// One or two members are late, absent, dead, canceled or call with another parameter, at any step, in random orders of all
// messages. The outcomes are alike in all members.
func TestCreate_RandomOrders_OutcomesAreAlike(t *testing.T) {
	n := *orders
	if testing.Short() {
		n /= 10
	}
	kinds := map[string]int{}
	for i := range n {
		random := rand.New(rand.NewPCG(*seed, uint64(i)))
		job := even(3, 2)
		job.Random = random
		job.HasNoSharedMemory, job.CannotOpenMemory = random.IntN(8) == 0, random.IntN(8) == 0
		for range 1 + random.IntN(2) {
			job.Faults = append(job.Faults, wireuptest.Fault{Member: random.IntN(6), Kind: wireuptest.FaultKind(random.IntN(5)),
				AtStep: random.IntN(16), IsDuringWait: random.IntN(2) == 0})
		}
		if len(job.Faults) == 2 && job.Faults[0].Member == job.Faults[1].Member {
			job.Faults = job.Faults[:1]
		}
		r := job.Run()
		if err := job.Check(r); err != nil {
			t.Fatalf("order %d with %+v: %v", i, job.Faults, err)
		}
		kinds[summarize(r)]++
	}
	t.Logf("%d orders of 3 nodes x 2: %v", n, kinds)
	for _, kind := range []string{"created", "failed", "created without some"} {
		if kinds[kind] == 0 {
			t.Errorf("no order has the outcome %q", kind)
		}
	}
}

// summarize names the outcome of a job.
func summarize(r wireuptest.Result) string {
	created, failed := false, false
	for _, o := range r.Outcomes {
		created = created || o.HasCalled && !o.HasDied && o.Err == nil
		failed = failed || o.RefusedID != 0
	}
	switch {
	case created && failed:
		return "created without some"
	case created:
		return "created"
	}
	return "failed"
}

// An invalid message is ErrTransport in all members that return an error, with its sender. Exactly the members that have received the verdict have
// created the communicator.
func TestCreate_GarbageMessage_NamesSender(t *testing.T) {
	alterations := map[string]func([]byte) []byte{
		"empty":           func([]byte) []byte { return nil },
		"another version": func(b []byte) []byte { return append([]byte{b[0] + 1}, b[1:]...) },
		"another kind":    func(b []byte) []byte { return append([]byte{b[0], 0xff}, b[2:]...) },
		"cut":             func(b []byte) []byte { return b[:min(len(b), 20)] },
		"zero":            func(b []byte) []byte { return append(slices.Clone(b[:2]), make([]byte, len(b)-2)...) },
	}
	for _, kind := range []wireup.Kind{wireup.Gather, wireup.Result, wireup.Confirm, wireup.Commit} {
		for text, alter := range alterations {
			job := even(3, 2)
			sender := -1
			job.AlterMessage = func(from, to int, b []byte) []byte {
				if wireup.KindOf(b) != kind || sender >= 0 || kind == wireup.Confirm && from%2 == 1 {
					return b
				}
				sender = from
				return alter(b)
			}
			r := job.Run()
			created := 0
			for i, o := range r.Outcomes {
				switch {
				case o.Err == nil:
					created++
				case !errors.Is(o.Err, framework.ErrTransport) || !strings.Contains(o.Err.Error(), fmt.Sprintf("rank %d", sender)):
					t.Errorf("%v %s: the error of member %d does not name %d: %v", kind, text, i, sender, o.Err)
				}
			}
			switch {
			case (kind == wireup.Confirm || kind == wireup.Commit) && (text == "cut" || text == "zero"): // The bodies are empty.
				if created != len(r.Outcomes) {
					t.Errorf("%v %s: %d created", kind, text, created)
				}
			case kind != wireup.Commit && created > 0 || created == len(r.Outcomes):
				t.Errorf("%v %s: %d created", kind, text, created)
			}
		}
	}
}

// A member that cannot accept the table makes the creation fail in all members, with the reason.
func TestCreate_MemberDoesNotAccept_AllFail(t *testing.T) {
	for member := range 6 {
		job := even(3, 2)
		job.AcceptTable = func(m int, _ *wireup.Table) error {
			if m == member {
				return fmt.Errorf("%w: no id left", framework.ErrUnsupported)
			}
			return nil
		}
		for i, o := range job.Run().Outcomes {
			if !errors.Is(o.Err, framework.ErrUnsupported) || !strings.Contains(o.Err.Error(), "no id left") {
				t.Errorf("member %d does not accept, and the error of %d is %v", member, i, o.Err)
			}
		}
	}
}

// An invalid table is ErrTransport in all members, with the process that has sent it. That is the root of the node for
// other members, and the coordinator for the roots, because each is a child of it.
func TestCreate_TableMakesNoSense_NamesSender(t *testing.T) {
	for member := range 6 {
		sender := 0
		if member%2 == 1 {
			sender = member - 1
		}
		job := even(3, 2)
		job.AcceptTable = func(m int, _ *wireup.Table) error {
			if m == member {
				return wireup.BadTable(errors.New("record of rank 4"))
			}
			return nil
		}
		for i, o := range job.Run().Outcomes {
			if !errors.Is(o.Err, framework.ErrTransport) || !strings.Contains(o.Err.Error(), fmt.Sprint("rank ", sender)) {
				t.Errorf("bad table in member %d, error of member %d: %v", member, i, o.Err)
			}
		}
	}
}

// An invalid payload of a member is ErrTransport in all members, with the member.
func TestCreate_BadCard_NamesMember(t *testing.T) {
	job := even(3, 2)
	good := wireuptest.SmallPayload
	job.Payload = func(member int) wireup.Payload {
		p := good(member)
		if member == 3 {
			p.Card = []byte{0x01}
		}
		return p
	}
	for i, o := range job.Run().Outcomes {
		if !errors.Is(o.Err, framework.ErrTransport) || !strings.Contains(o.Err.Error(), "rank 3") {
			t.Errorf("member %d: %v", i, o.Err)
		}
	}
}

// A construct sends no more bytes from one process than the largest block needs, however many nodes there are.
func TestCreate_ManyNodes_BytesThroughBootstrapAreBounded(t *testing.T) {
	few, many := even(wireup.BlockSize, 2).Run(), even(8*wireup.BlockSize, 2).Run()
	if few.MostLauncherBytes*5/4 < many.MostLauncherBytes {
		t.Errorf("%d bytes with %d nodes, %d with 8 times as many", few.MostLauncherBytes, wireup.BlockSize, many.MostLauncherBytes)
	}
}
