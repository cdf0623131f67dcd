package main

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/ferrympi/ferry/assembly/wireup"
	"github.com/ferrympi/ferry/assembly/wireup/wireuptest"
	"github.com/ferrympi/ferry/cid"
)

// sample is the number of modeled processes for each process with real structures.
const sample = 256

// procBytes is more than a PML keeps for each process with which it has exchanged messages (ob1, as allocated, with the decoded card).
const procBytes = 5440 + 432 + 880

// creation is a communicator that the model has created.
type creation struct {
	wireuptest.Result
	table int   // Bytes of the table, once on each node.
	view  int64 // Private bytes of a process for the table and the id, measured.
	peers []int // Processes with which a process exchanged messages, ascending.
}

// kept are the real structures of a process for a communicator, before its first message.
type kept struct {
	table *wireup.Table
	ids   *cid.Table
}

// newCreation measures the bytes that processes keep.
func newCreation(r wireuptest.Result) (*creation, error) {
	c := &creation{Result: r, table: len(r.Outcomes[0].Table.Bytes())}
	for i := range r.Outcomes {
		c.peers = append(c.peers, r.Outcomes[i].Peers)
	}
	slices.Sort(c.peers)
	all := make([]kept, 0, (len(r.Outcomes)+sample-1)/sample)
	before := heap()
	for i := 0; i < len(r.Outcomes); i += sample {
		k, err := keep(r.Outcomes[i].Table, len(r.Outcomes))
		if err != nil {
			return nil, fmt.Errorf("member %d: %w", i, err)
		}
		all = append(all, k)
	}
	c.view = (heap() - before) / int64(len(all))
	runtime.KeepAlive(all)
	runtime.KeepAlive(r)
	return c, nil
}

// keep makes the structures of a process.
func keep(shared *wireup.Table, members int) (kept, error) {
	t, err := wireup.OpenTable(shared.Bytes(), members)
	if err != nil {
		return kept{}, err
	}
	k := kept{table: t, ids: cid.NewTable(cid.IndexBits)}
	offer := k.ids.OfferFor(cid.PolicyAgree, 2, 1<<10)
	return k, k.ids.Accept(offer, t.Decision().IDs.Common)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// kept returns the private bytes of a process with the given number of peers.
func (c *creation) kept(peers int) int64 { return c.view + int64(peers)*procBytes }

// median and root return the private bytes of the median process and of the process with the most peers.
func (c *creation) median() int64 { return c.kept(c.peers[len(c.peers)/2]) }
func (c *creation) root() int64   { return c.kept(c.peers[len(c.peers)-1]) }

// report prints a creation.
func report(out io.Writer, title string, c *creation) {
	fmt.Fprintf(out, "%s\n", title)
	fmt.Fprintf(out, "  %d rounds, %d messages, %v\n", c.Rounds, c.Total.Messages, round(c.Elapsed))
	fmt.Fprintf(out, "  bootstrap %s, at most %s by a process; messages %s\n",
		size(c.Total.LauncherBytes), size(c.MostLauncherBytes), size(c.Total.MessageBytes))
	fmt.Fprintf(out, "  kept before the first message: table %s on each node; in a process %s for the table, %d bytes for each of its peers in the creation (median %d, most %d)\n",
		size(int64(c.table)), size(c.view), procBytes, c.peers[len(c.peers)/2], c.peers[len(c.peers)-1])
}

// checkWorld compares a world with the limits, and with a world of few nodes.
func checkWorld(out io.Writer, c, few *creation) error {
	ratio := float64(c.Rounds) / float64(few.Rounds)
	for _, limit := range []struct {
		name        string
		value, most float64
		text        string
	}{
		{"rounds, to those of the reference", ratio, mostRoundsRatio, fmt.Sprintf("%.2f", ratio)},
		{"bytes of a process through the bootstrap", float64(c.MostLauncherBytes), mostLauncherBytes, size(c.MostLauncherBytes)},
		{"table of a node", float64(c.table), mostTableBytes, size(int64(c.table))},
		{"kept in the median process", float64(c.median()), mostMedianBytes, size(c.median())},
		{"kept in the root with the most peers", float64(c.root()), mostRootBytes, size(c.root())},
	} {
		fmt.Fprintf(out, "  %s: %s\n", limit.name, limit.text)
		if limit.value > limit.most {
			return fmt.Errorf("%s: %s, more than the limit of %v", limit.name, limit.text, limit.most)
		}
	}
	return nil
}

// size formats bytes.
func size(n int64) string {
	switch {
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
