package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"

	"github.com/ferrympi/ferry/mpi"
)

// cost is the cost of communicators in a process.
type cost struct {
	// Other processes with a path of a transport.
	Paths int64
	// Memory that no other process shares, in KiB.
	Private int64
}

// costOf measures the process me.
func costOf(s *mpi.Session, me mpi.Proc) (c cost, err error) {
	for _, p := range s.Stats().Peers {
		if p.Proc != me && p.Transport != "" {
			c.Paths++
		}
	}
	c.Private, err = privateMemory()
	return c, err
}

// privateMemory returns the memory that no other process shares, in KiB, after a collection.
func privateMemory() (kib int64, err error) {
	debug.FreeOSMemory()
	f, err := os.Open("/proc/self/smaps_rollup")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var name string
		var n int64
		if _, err := fmt.Sscanf(lines.Text(), "%s %d kB", &name, &n); err == nil && (name == "Private_Clean:" || name == "Private_Dirty:") {
			kib += n
		}
	}
	return kib, lines.Err()
}

// middle returns the medians of measurements.
func middle(costs []cost) cost {
	var paths, private []int64
	for _, c := range costs {
		paths, private = append(paths, c.Paths), append(private, c.Private)
	}
	return cost{Paths: median(paths), Private: median(private)}
}

// report prints the costs of all processes at rank 0.
func report(ctx context.Context, sparse, world cost) (err error) {
	session, err := mpi.OpenSession(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	roots, err := session.PsetInfo(ctx, "mpix://ROOTS")
	if err != nil {
		return err
	}
	all, err := communicator(ctx, session, "mpi://WORLD")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, all.Close()) }()
	costs := make([][2]cost, all.Size())
	if err := mpi.Gather(ctx, all, [][2]cost{{sparse, world}}, costs, 0); err != nil || all.Rank() != 0 {
		return err
	}
	fmt.Printf("%d processes, %d in ROOTS\n", all.Size(), roots.Size)
	fmt.Printf("%-34s  SHARED and ROOTS  WORLD\n", "")
	rows := []struct {
		name   string
		of     func(cost) int64
		reduce func([]int64) int64
	}{
		{"open paths, all processes", func(c cost) int64 { return c.Paths }, total},
		{"open paths, most of a process", func(c cost) int64 { return c.Paths }, slices.Max[[]int64]},
		{"private memory of a process, KiB", func(c cost) int64 { return c.Private }, median},
	}
	result := "ok: the sums over SHARED and ROOTS are those over WORLD"
	for i, row := range rows {
		var columns [2][]int64
		for _, c := range costs {
			for i := range columns {
				columns[i] = append(columns[i], row.of(c[i]))
			}
		}
		fmt.Printf("%-34s  %16d  %5d\n", row.name, row.reduce(columns[0]), row.reduce(columns[1]))
		if i == 0 && row.reduce(columns[0]) < row.reduce(columns[1]) {
			result += ", and SHARED and ROOTS have fewer open paths"
		}
	}
	fmt.Println(result)
	return nil
}

func total(x []int64) (sum int64) {
	for _, n := range x {
		sum += n
	}
	return sum
}

func median(x []int64) int64 {
	slices.Sort(x)
	return x[len(x)/2]
}
