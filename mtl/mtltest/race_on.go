//go:build race

package mtltest

// underRace says that the race detector is on.
const underRace = true
