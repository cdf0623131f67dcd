//go:build race

package launchers

// raceDetector reports whether the race detector is on, which allocates memory per code location.
const raceDetector = true
