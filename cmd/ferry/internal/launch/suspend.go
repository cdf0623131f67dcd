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
	s.limit.pause()
	s.signalAll(syscall.SIGSTOP)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // Never fails for this process.
}

// limit is a time limit that is paused while the job is stopped. The zero value is no limit.
type limit struct {
	timer *time.Timer
	end   time.Time
	left  time.Duration // While paused.
}

func (l *limit) begin(d time.Duration) {
	l.timer, l.end = time.NewTimer(d), time.Now().Add(d)
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
		l.left = time.Until(l.end)
	}
}

func (l *limit) resume() {
	if l.timer != nil && l.left > 0 {
		l.end = time.Now().Add(l.left)
		l.timer.Reset(l.left)
		l.left = 0
	}
}
