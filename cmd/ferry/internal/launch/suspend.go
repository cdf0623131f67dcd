package launch

import (
	"os"
	"syscall"
	"time"
)

// suspend stops the ranks, and then this process, as Ctrl-Z stops a program. A terminal does
// not send the signal to the ranks' process groups. They get SIGSTOP, since orphaned process
// groups ignore SIGTSTP. SIGCONT resumes all.
func (s *supervisor) suspend() {
	s.timeLimit.pause()
	s.signalAll(syscall.SIGSTOP)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // Never fails for this process.
}

// limit is a time limit that is paused while the job is stopped. The zero value is no limit.
type limit struct {
	timer         *time.Timer
	endsAt        time.Time
	remainingTime time.Duration // While paused.
}

func (l *limit) begin(d time.Duration) {
	l.timer, l.endsAt = time.NewTimer(d), time.Now().Add(d)
}

// up returns a channel that is readable at the limit.
func (l *limit) up() <-chan time.Time {
	if l.timer == nil {
		return nil
	}
	return l.timer.C
}

func (l *limit) pause() {
	if l.timer != nil && l.timer.Stop() {
		l.remainingTime = time.Until(l.endsAt)
	}
}

func (l *limit) resume() {
	if l.timer != nil && l.remainingTime > 0 {
		l.endsAt = time.Now().Add(l.remainingTime)
		l.timer.Reset(l.remainingTime)
		l.remainingTime = 0
	}
}
