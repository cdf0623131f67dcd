package launchers

import (
	"testing"

	"github.com/ferrympi/ferry/internal/needs"
)

// TestGrowthIsSeen: Steady tells a process that keeps something of each round from one that
// does not.
func TestGrowthIsSeen(t *testing.T) {
	needs.Time(t)
	Each(t, []Launcher{FerryRun, Hydra}, func(t *testing.T, l *Started) {
		l.ToTheEnd(t, Job{Size: 1, Program: "grow"})
		t.Log(l.ToTheEnd(t, Job{Size: 1, Program: "steady"}).Ranks[0].Output)
	})
}
