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
	// Once on each node.
	tableBytes int
	// Private bytes of a process for the communicator before its first message, with the processes of the creation. They are
	// measured with real structures, which are not those of transports.
	ordinaryBytes, mostBytes int64
	// Number of peers of these two in the creation.
	ordinaryPeers, mostPeers int
	sampleCount              int
}

// newCreation measures the bytes that processes keep. Ordinary processes are the samples that have as many peers as their median. The process
// with the most peers may have no sample. Then that with the most peers of all samples gets the others, too.
func newCreation(r wireuptest.Result, s *samples) (*creation, error) {
	c := &creation{Result: r, tableBytes: len(r.Outcomes[0].Table.Bytes())}
	if s == nil {
		return c, nil
	}
	var peers []int
	for i := range r.Outcomes {
		peers = append(peers, r.Outcomes[i].PeerCount)
	}
	slices.Sort(peers)
	c.sampleCount, c.ordinaryPeers, c.mostPeers = len(s.sampleList), peers[len(peers)/2], peers[len(peers)-1]
	for _, x := range s.sampleList {
		x.peerCount = r.Outcomes[x.groupRank].PeerCount
	}
	slices.SortStableFunc(s.sampleList, func(a, b *sample) int { return a.peerCount - b.peerCount })
	last := len(s.sampleList) - 1
	if last == 0 { // A group of one.
		var err error
		c.mostBytes, err = s.measure(r, s.sampleList)
		c.ordinaryBytes = c.mostBytes
		return c, err
	}
	most, rest, median := s.sampleList[last], s.sampleList[:last], s.sampleList[last/2].peerCount
	isOrdinary := func(x *sample) bool { return x.peerCount == median }
	first := slices.IndexFunc(rest, isOrdinary)
	end := first
	for end < len(rest) && isOrdinary(rest[end]) {
		rest[end].peerCount = c.ordinaryPeers
		end++
	}
	most.peerCount = c.mostPeers
	var err error
	if c.ordinaryBytes, err = s.measure(r, rest[first:end]); err == nil {
		c.mostBytes, err = s.measure(r, s.sampleList[last:])
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
	fmt.Fprintf(out, "  %d rounds, %d messages, %v\n", c.LongestChain, c.TotalCounts.MessageCount, round(c.Elapsed))
	fmt.Fprintf(out, "  bootstrap %s, at most %s by a process; messages %s\n",
		size(c.TotalCounts.LauncherBytes), size(c.MostLauncherBytes), size(c.TotalCounts.MessageBytes))
	fmt.Fprintf(out, "  kept before the first message: table %s on each node; in a process %s with %d peers in the creation, %s with %d (%d processes measured)\n",
		size(int64(c.tableBytes)), size(c.ordinaryBytes), c.ordinaryPeers, size(c.mostBytes), c.mostPeers, c.sampleCount)
}

// checkWorld compares a world with the limits, and with a world of few nodes.
func checkWorld(out io.Writer, c, few *creation) error {
	ratio := float64(c.LongestChain) / float64(few.LongestChain)
	for _, limit := range []struct {
		name        string
		value, most float64
		text        string
	}{
		{"rounds, to those of the reference", ratio, mostRoundsRatio, fmt.Sprintf("%.2f", ratio)},
		{"bytes of a process through the bootstrap", float64(c.MostLauncherBytes), mostLauncherBytes, size(c.MostLauncherBytes)},
		{"table of a node", float64(c.tableBytes), mostTableBytes, size(int64(c.tableBytes))},
		{"kept in the median process", float64(c.ordinaryBytes), mostMedianBytes, size(c.ordinaryBytes)},
		{"kept in the root with the most peers", float64(c.mostBytes), mostRootBytes, size(c.mostBytes)},
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
