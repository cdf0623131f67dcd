package launchers

import (
	"testing"
	"time"
)

// ToTheEnd runs a job, and fails the test unless every rank and the launcher end well
// and leave nothing.
func (s *Started) ToTheEnd(t testing.TB, job Job) Result {
	t.Helper()
	r := s.Begin(t, job)
	res := r.Wait()
	if err := res.Failures(job.Program); err != nil {
		t.Fatalf("%v\n%v", err, res)
	}
	// A launcher may end before what it has started.
	if left := r.Gone(prompt); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if len(res.Segments) > 0 {
		t.Errorf("left in shared memory: %v", res.Segments)
	}
	return res
}

// prompt is far more than what takes a moment needs on a busy machine.
const prompt = 20 * time.Second

// KillLauncher starts a job, kills its launcher with SIGKILL at the moment that every rank
// has called Ready (or has begun, if the program is a file), and fails the test if a process
// of the job still runs after within. It returns what the ranks have told; how long after the
// kill the last of them ended is its Time.
func (s *Started) KillLauncher(t testing.TB, job Job, within time.Duration) Result {
	t.Helper()
	r := s.Begin(t, job)
	r.Await(t)
	killed := time.Now()
	r.Kill(t)
	left := r.Gone(within)
	took := time.Since(killed)
	res := r.Wait()
	res.Time = took
	if len(left) > 0 {
		t.Fatalf("%v after the launcher was killed these run: %v\n%v", within, left, res)
	}
	return res
}
