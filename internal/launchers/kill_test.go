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
		if left := r.Gone(2 * time.Second); len(left) != 3 {
			t.Errorf("after 2 s these live on: %v", left)
		}
	})
}

// TestLauncherKilledBeforeRanksAreThere: at any moment of its start.
func TestLauncherKilledBeforeRanksAreThere(t *testing.T) {
	Each(t, everyone(), func(t *testing.T, l *Started) {
		if l.Orphans {
			t.Skip("its ranks live on")
		}
		for i := range 10 {
			after := time.Duration(i) * 5 * time.Millisecond
			r := l.Begin(t, Job{Size: 2, Program: "sleep"})
			time.Sleep(after)
			r.Kill(t)
			if left := r.Gone(prompt); len(left) > 0 {
				t.Errorf("killed after %v: %v live on", after, left)
			}
		}
	})
}
