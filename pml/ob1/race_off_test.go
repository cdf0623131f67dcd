//go:build !race

package ob1_test

// underRace reports whether the race detector is on.
const underRace = false
