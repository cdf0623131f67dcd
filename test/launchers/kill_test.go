package launchers

import (
	"testing"
	"time"
)

// The launcher of idle ranks is killed. docs/launchers.md has the results. Ranks that survive must
// notice by themselves.
func TestLauncher_Killed_RanksEnd(t *testing.T) {
	Each(t, allLaunchers(), func(t *testing.T, l *Started) {
		t.Parallel() // Mostly waits.
		if !l.RanksSurvive {
			res := l.KillLauncher(t, Job{Size: 3, Program: "sleep"}, endTimeout)
			t.Logf("no process is left after %v", res.ElapsedTime)
			return
		}
		r := l.Begin(t, Job{Size: 3, Program: "sleep"})
		r.Await(t)
		r.Kill(t)
		t.Logf("processes after 2 s: %v", r.AwaitEnd(2*time.Second))
	})
}

// The launcher is killed at several moments of its start. Remaining processes of other launchers
// are only counted, because Hydra's proxy sometimes leaves a rank.
func TestLauncher_KilledDuringStart_RanksEnd(t *testing.T) {
	Each(t, allLaunchers(), func(t *testing.T, l *Started) {
		t.Parallel() // Mostly waits.
		limit := endTimeout
		if l.Interface != Local {
			limit = time.Second
		}
		const kills = 10
		lived := 0
		for i := range kills {
			after := time.Duration(i) * 5 * time.Millisecond
			r := l.Begin(t, Job{Size: 2, Program: "sleep"})
			time.Sleep(after)
			r.Kill(t)
			left := r.AwaitEnd(limit)
			if len(left) > 0 {
				lived++
			}
			if len(left) > 0 && l.Interface == Local {
				t.Errorf("killed after %v: remaining processes %v", after, left)
			}
		}
		t.Logf("%d of %d launchers left ranks", lived, kills)
	})
}
