package main

import (
	"runtime"
	"strconv"
)

// Rows about paired goroutines, each pair on a dup or on a stream. Processes are not bound on either side, because
// a rank has several threads.

// onLanes is the 8 B message rate of goroutines of two processes beside threads of the peers.
func onLanes(name, network string, threads int, flags ...string) figure {
	f := window(name, "mbw_mr", "million/s", 8, 1, 1, "-")
	f.threadPairs, f.networkName = threads, network
	f.iterations, f.warmupIterations = 1000, 100 // A loop of OSU's length ends before the last thread has started.
	f.ferryFlags = append([]string{"--threads", strconv.Itoa(threads)}, flags...)
	f.peerFlags = f.ferryFlags
	return f
}

// streamFigures are the rows beside the peers.
func streamFigures() []figure {
	return []figure{
		onLanes("8 B message rate of 2 threads on dups, without streams", "", 2),
		onLanes("8 B message rate of 2 threads on streams", "streams", 2, "--streams"),
	}
}

// besideLanes are the rows of streams beside ferry's dups, and beside a single stream.
func besideLanes() []figure {
	row := func(name, title string, least float64, other figure) figure {
		f := onLanes(name, "", 2, "--streams")
		f.versusVariant, f.wantedBound = &variant{Title: title, ferryFlags: other.ferryFlags}, bound{AtLeast: least}
		return f
	}
	const enough = 4 // Processors for two goroutines of each of two processes.
	least := 0.7
	if runtime.NumCPU() >= enough {
		least = 1.5
	}
	return []figure{
		row("8 B message rate of 2 threads on 2 streams to 2 on dups", "dups", 1.2, onLanes("", "", 2)),
		row("8 B message rate of 2 threads on 2 streams to 1 on a stream", "1 stream", least, onLanes("", "", 1, "--streams")),
	}
}
