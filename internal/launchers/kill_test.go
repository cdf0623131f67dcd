package launchers

import (
	"testing"
	"time"
)

// TestKilledLauncher: what becomes of ranks that wait for nothing when their launcher is
// killed, as docs/launchers.md says. Those that live on must notice by themselves.
func TestKilledLauncher(t *testing.T) {
	Each(t, everyone(), func(t *testing.T, l *Started) {
		t.Parallel() // mostly waits
		if !l.Orphans {
			res := l.KillLauncher(t, Job{Size: 3, Program: "sleep"}, prompt)
			t.Logf("no process is left after %v", res.Time)
			return
		}
		r := l.Begin(t, Job{Size: 3, Program: "sleep"})
		r.Await(t)
		r.Kill(t)
		t.Logf("after 2 s these live on: %v", r.Gone(2*time.Second))
	})
}

// TestLauncherKilledBeforeRanksAreThere: at any moment of its start. What others leave then
// is only counted: Hydra's proxy has been seen to leave a rank.
func TestLauncherKilledBeforeRanksAreThere(t *testing.T) {
	Each(t, everyone(), func(t *testing.T, l *Started) {
		t.Parallel() // mostly waits
		limit := prompt
		if l.Speaks != Local {
			limit = time.Second
		}
		const kills = 10
		lived := 0
		for i := range kills {
			after := time.Duration(i) * 5 * time.Millisecond
			r := l.Begin(t, Job{Size: 2, Program: "sleep"})
			time.Sleep(after)
			r.Kill(t)
			left := r.Gone(limit)
			if len(left) > 0 {
				lived++
			}
			if len(left) > 0 && l.Speaks == Local {
				t.Errorf("killed after %v: %v live on", after, left)
			}
		}
		t.Logf("%d of %d launchers have left ranks", lived, kills)
	})
}
