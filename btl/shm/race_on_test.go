//go:build race

package shm

// underRace says that the race detector is on: it sees Go memory only, and takes
// ten times as long.
const underRace = true
