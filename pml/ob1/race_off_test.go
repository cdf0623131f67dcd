//go:build !race

package ob1_test

// underRace says that the race detector is on.
const underRace = false
