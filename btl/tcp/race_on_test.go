//go:build race

package tcp_test

// underRace reports whether the race detector is on. Tests of whole jobs take several times as
// long with it, and have little that it does not see elsewhere.
const underRace = true
