//go:build !race

package tcp_test

// underRace reports whether the race detector is on.
const underRace = false
