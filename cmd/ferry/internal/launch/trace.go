package launch

import "time"

// Trace says when the launcher did what, on CLOCK_MONOTONIC, which ranks read
// too. It is part of every Result: reading the clock a few times for each rank
// costs nothing beside making a process.
type Trace struct {
	Begin   time.Duration // Run was called
	Serving time.Duration // ranks could connect from now on
	Ranks   []RankTrace   // of those that were started
	Over    time.Duration // the last rank had ended
	Done    time.Duration // everything was tidied up
}

// RankTrace is about one rank. That a process starts is seen from outside: what
// the kernel tells a process itself (/proc/self/stat) has a resolution of 10 ms,
// more than all of what is traced here may take.
type RankTrace struct {
	Rank    int
	Fork    time.Duration // its process was asked for
	Started time.Duration // the process runs the program
	Ended   time.Duration // the launcher knew that it had ended
}
