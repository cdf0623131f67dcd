package main

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/ferrympi/ferry/assembly/wireup/wireuptest"
)

// creation is a communicator that the model has created.
type creation struct {
	wireuptest.Result
	// Bytes of the table, once on each node.
	table int
	// Private bytes of a process for the communicator before its first message, with the processes of the creation. They are
	// measured with real structures, which are not those of transports.
	ordinary, most int64
	// Number of peers of these two in the creation.
	ordinaryPeers, mostPeers int
	samples                  int
}

// newCreation measures the bytes that processes keep. Ordinary processes are the samples that have as many peers as their median. The process
// with the most peers may have no sample. Then that with the most peers of all samples gets the others, too.
func newCreation(r wireuptest.Result, s *samples) (*creation, error) {
	c := &creation{Result: r, table: len(r.Outcomes[0].Table.Bytes())}
	if s == nil {
		return c, nil
	}
	var peers []int
	for i := range r.Outcomes {
		peers = append(peers, r.Outcomes[i].Peers)
	}
	slices.Sort(peers)
	c.samples, c.ordinaryPeers, c.mostPeers = len(s.list), peers[len(peers)/2], peers[len(peers)-1]
	for _, x := range s.list {
		x.peers = r.Outcomes[x.member].Peers
	}
	slices.SortStableFunc(s.list, func(a, b *sample) int { return a.peers - b.peers })
	last := len(s.list) - 1
	if last == 0 { // A group of one.
		var err error
		c.most, err = s.measure(r, s.list)
		c.ordinary = c.most
		return c, err
	}
	most, rest, median := s.list[last], s.list[:last], s.list[last/2].peers
	isOrdinary := func(x *sample) bool { return x.peers == median }
	first := slices.IndexFunc(rest, isOrdinary)
	end := first
	for end < len(rest) && isOrdinary(rest[end]) {
		rest[end].peers = c.ordinaryPeers
		end++
	}
	most.peers = c.mostPeers
	var err error
	if c.ordinary, err = s.measure(r, rest[first:end]); err == nil {
		c.most, err = s.measure(r, s.list[last:])
	}
	if err == nil {
		err = s.accept(r, slices.Concat(rest[:first], rest[end:]))
	}
	return c, err
}

// measure creates the communicator in some samples. It returns the mean of the bytes that they keep for it.
func (s *samples) measure(r wireuptest.Result, some []*sample) (int64, error) {
	before := heap()
	err := s.accept(r, some)
	kept := (heap() - before) / int64(len(some))
	runtime.KeepAlive(r)
	return kept, err
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // Frees memory of cleanups and pools.
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// report prints a creation.
func report(out io.Writer, title string, c *creation) {
	fmt.Fprintf(out, "%s\n", title)
	fmt.Fprintf(out, "  %d rounds, %d messages, %v\n", c.Rounds, c.Total.Messages, round(c.Elapsed))
	fmt.Fprintf(out, "  bootstrap %s, at most %s by a process; messages %s\n",
		size(c.Total.LauncherBytes), size(c.MostLauncherBytes), size(c.Total.MessageBytes))
	fmt.Fprintf(out, "  kept before the first message: table %s on each node; in a process %s with %d peers in the creation, %s with %d (%d processes measured)\n",
		size(int64(c.table)), size(c.ordinary), c.ordinaryPeers, size(c.most), c.mostPeers, c.samples)
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
		{"kept in the median process", float64(c.ordinary), mostMedianBytes, size(c.ordinary)},
		{"kept in the root with the most peers", float64(c.most), mostRootBytes, size(c.most)},
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
