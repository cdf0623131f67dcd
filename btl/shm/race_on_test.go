//go:build race

package shm

// underRace reports whether the race detector is on. It observes Go memory only, and slows tests
// down ten times.
const underRace = true
