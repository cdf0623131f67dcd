package launchers

import (
	"testing"

	"github.com/ferrympi/ferry/internal/needs"
)

// Steady detects a process that leaks something in each round.
func TestSteady_Leak_ReturnsError(t *testing.T) {
	needs.Time(t)
	Each(t, []Launcher{FerryRun, Hydra}, func(t *testing.T, l *Started) {
		l.RunToEnd(t, Job{Size: 1, Program: "grow"})
		t.Log(l.RunToEnd(t, Job{Size: 1, Program: "steady"}).Ranks[0].Output)
	})
}
