//go:build race

package ob1_test

// underRace reports whether the race detector is on. It observes Go memory only, and slows
// tests by a factor of ten.
const underRace = true
