package main

import (
	"fmt"
	"strconv"
)

// Rows about goroutine ranks. Those of one process are two goroutines with a thread and a core each, as two processes
// have.

// onGoroutines makes ours a job of processes with goroutine ranks, f.Ranks in all.
func onGoroutines(f figure, processes int, flags ...string) figure {
	f.commandLine = func(program string) []string {
		args := []string{program, "bench", f.BenchName, "-n", strconv.Itoa(processes), "--goroutines", strconv.Itoa(f.Ranks / processes),
			"-m", fmt.Sprintf("%d:%d", f.MessageBytes, f.MessageBytes), "-i", strconv.Itoa(f.iterations), "-x", strconv.Itoa(f.warmupIterations), "--format", "json"}
		return append(args, flags...)
	}
	return f
}

// besideThreads is a figure of goroutine ranks beside threads, as setting.OnlyNetwork names them.
func besideThreads(f figure, name, network string, wanted float64, flags ...string) figure {
	f.Name, f.networkName, f.WantedDefault, f.WantedBest, f.Aim = name, network, wanted, wanted, "-"
	return onGoroutines(f, 1, flags...)
}

// goroutineFigures returns the rows of goroutine ranks beside peers with processes or threads as ranks.
func goroutineFigures() []figure {
	const kib = 1 << 10
	const openMP, threadComm = "OpenMP", "thread communicator"
	lat, barrier := latency("", 8, 0.8, 0.8, "0.65"), collective("", "barrier", 0, 2, 0, 0, "")
	reduce := func(size int) figure { return collective("", "reduce", size, 2, 0, 0, "") }
	processes := lat
	processes.Name = "8 B latency of goroutine ranks to the peers' processes"
	list := []figure{
		onGoroutines(processes, 1),
		besideThreads(lat, "8 B latency of goroutine ranks to threads", threadComm, 1),
		besideThreads(barrier, "barrier of 2 goroutine ranks to threads", threadComm, 1),
		besideThreads(reduce(4*kib), "reduce 4 KiB of 2 goroutine ranks to threads", threadComm, 1),
		besideThreads(barrier, "barrier of 2 goroutine ranks to OpenMP's", openMP, 1.3),
	}
	for _, size := range []struct {
		name   string
		bytes  int
		wanted float64
	}{{"1 KiB", kib, 0.7}, {"4 KiB", 4 * kib, 0.7}, {"16 KiB", 16 * kib, 0.7}, {"64 KiB", 64 * kib, 0.7}, {"1 MiB", kib * kib, 1}} {
		name := "reduce of ints " + size.name + " of 2 goroutine ranks to OpenMP's"
		list = append(list, besideThreads(reduce(size.bytes), name, openMP, size.wanted, "--type", "int"))
	}
	return list
}

// besideProcesses are the rows of goroutine ranks beside ferry's processes.
func besideProcesses() []figure {
	const kib = 1 << 10
	bandwidth := func(size int) figure { return window("", "bw", "GB/s", size, 0, 0, "") }
	row := func(f figure, name string, processes int, wanted bound) figure {
		f = onGoroutines(f, processes)
		f.Name, f.versusVariant, f.wantedBound = name, &variant{Title: "processes"}, wanted
		return f
	}
	lat := latency("", 8, 0, 0, "")
	return []figure{
		row(lat, "8 B latency of 2 goroutine ranks to 2 processes", 1, bound{AtMost: 1}),
		row(lat, "8 B latency of goroutine ranks in 2 processes to 2 processes", 2, bound{AtMost: 1.5}),
		row(bandwidth(64*kib), "bandwidth 64 KiB of 2 goroutine ranks to 2 processes", 1, bound{AtLeast: 1}),
		row(bandwidth(kib*kib), "bandwidth 1 MiB of 2 goroutine ranks to 2 processes", 1, bound{AtLeast: 1}),
		row(collective("", "barrier", 0, 2, 0, 0, ""), "barrier of 2 goroutine ranks to 2 processes", 1, bound{AtMost: 1}),
	}
}
