//go:build !race

package launchers

const raceDetector = false
