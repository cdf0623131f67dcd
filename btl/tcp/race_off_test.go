//go:build !race

package tcp_test

// underRace says that the race detector is on.
const underRace = false
