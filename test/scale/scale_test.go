package main

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse_BadFlags_ReturnsError(t *testing.T) {
	for _, args := range []string{
		"-nodes 0", "-nodes 8193", "-ppn 0", "-nodes 8192 -ppn 129", "-faults -1", "-nodes x", "extra",
		"-network 1us", "-network a,b,c,d", "-network 1us,1us,1us,-1", "-network -1us,1us,1us,1",
	} {
		if o, err := parse(strings.Fields(args), io.Discard); err == nil {
			t.Errorf("%s: %+v", args, o)
		}
	}
}

func TestParse_Network_SetsLogGP(t *testing.T) {
	o, err := parse(strings.Fields("-nodes 3 -network 2us,30ns,4ns,0.5"), io.Discard)
	if err != nil || o.nodeCount != 3 || (*network)(&o.machine.Network).String() != "2µs,30ns,4ns,0.5" {
		t.Errorf("%+v, %v", o, err)
	}
}

// The reference, a world, a sparse world and every second rank are created, and keep the limits.
func TestRunSizes_SomeNodes_KeepsLimits(t *testing.T) {
	o, err := parse(strings.Fields("-nodes 130 -ppn 3"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := runSizes(&out, o); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{"for reference", "world of 130 nodes x 3", "sparse world: ROOTS", "every second rank", "rounds, to those of the reference"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

func TestCheckWorld_LimitExceeded_ReturnsError(t *testing.T) {
	few := new(creation)
	few.LongestChain = 10
	for name, change := range map[string]func(c *creation){
		"rounds": func(c *creation) { c.LongestChain = 21 },
		"bytes":  func(c *creation) { c.MostLauncherBytes = mostLauncherBytes + 1 },
		"table":  func(c *creation) { c.tableBytes = mostTableBytes + 1 },
		"median": func(c *creation) { c.ordinaryBytes = mostMedianBytes + 1 },
		"root":   func(c *creation) { c.mostBytes = mostRootBytes + 1 },
	} {
		c := new(creation)
		c.LongestChain = 20
		if err := checkWorld(io.Discard, c, few); err != nil {
			t.Fatal(err)
		}
		change(c)
		if checkWorld(io.Discard, c, few) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// The rows of small jobs in docs/scale.md are those of the model.
func TestDocs_SmallRows_AreThoseOfTheModel(t *testing.T) {
	page, err := os.ReadFile("../../docs/scale.md")
	if err != nil {
		t.Fatal(err)
	}
	o, err := parse([]string{"-ppn", strconv.Itoa(docsPPN)}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, nodes := range []int{1, 2, 64, 128} {
		r, err := measureRow(o, nodes)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(page), r.String()) {
			t.Errorf("docs/scale.md has another row than %s go run ./test/scale -docs docs writes it", r)
		}
	}
}

func TestRunFaults_AnySeed_EndAlike(t *testing.T) {
	o, err := parse(strings.Fields("-nodes 5 -ppn 3 -faults 60 -seed 9"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := runFaults(&out, o); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
}

func TestRunSizes_FewProcesses_KeepsLimits(t *testing.T) {
	for _, flags := range []string{"-nodes 1 -ppn 1", "-nodes 1 -ppn 8", "-nodes 2 -ppn 1", "-nodes 3 -ppn 1"} {
		o, err := parse(strings.Fields(flags), io.Discard)
		if err == nil {
			err = runSizes(io.Discard, o)
		}
		if err != nil {
			t.Errorf("%s: %v", flags, err)
		}
	}
}

// A process has records of the processes of its node, and state in the PML for its peers in the creation.
func TestCreateMeasured_LargerNodes_KeepMore(t *testing.T) {
	kept := func(nodes, ppn string) *creation {
		o, err := parse([]string{"-nodes", nodes, "-ppn", ppn}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		c, err := createMeasured(o, o.world())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	const least = 100 // Bytes of a card.
	small, large := kept("96", "2"), kept("3", "64")
	if large.ordinaryBytes < small.ordinaryBytes+60*least || large.mostBytes < large.ordinaryBytes+int64(large.mostPeers-1)*least {
		t.Errorf("kept with 2 processes of a node: %d and %d; with 64: %d and %d", small.ordinaryBytes, small.mostBytes, large.ordinaryBytes, large.mostBytes)
	}
}
