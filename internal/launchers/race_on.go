//go:build race

package launchers

// raceDetector takes memory of its own, for each place that a program comes to.
const raceDetector = true
