package launchers

import (
	"testing"
	"time"
)

// RunToEnd runs a job. It fails the test unless every rank and the launcher succeed and leave no
// processes or files.
func (s *Started) RunToEnd(t testing.TB, job Job) Result {
	t.Helper()
	r := s.Begin(t, job)
	res := r.Wait()
	if err := res.Failures(job.Program); err != nil {
		t.Fatalf("%v\n%v", err, res)
	}
	// A launcher may end before its children.
	if left := r.AwaitEnd(endTimeout); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if len(res.RemainingSegments) > 0 {
		t.Errorf("left in shared memory: %v", res.RemainingSegments)
	}
	return res
}

// endTimeout is a generous timeout for short operations on a busy machine.
const endTimeout = 20 * time.Second

// KillLauncher starts a job and kills its launcher with SIGKILL as soon as every rank has called
// Ready, or has begun if the program is a file. It fails the test if a process of the job still
// runs after within. The ElapsedTime of the result is that from the kill to the end of the last process.
func (s *Started) KillLauncher(t testing.TB, job Job, within time.Duration) Result {
	t.Helper()
	r := s.Begin(t, job)
	r.Await(t)
	killed := time.Now()
	r.Kill(t)
	left := r.AwaitEnd(within)
	elapsed := time.Since(killed)
	res := r.Wait()
	res.ElapsedTime = elapsed
	if len(left) > 0 {
		t.Fatalf("%v after the launcher was killed these run: %v\n%v", within, left, res)
	}
	return res
}
