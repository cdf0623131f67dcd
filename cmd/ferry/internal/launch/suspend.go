package launch

import (
	"os"
	"syscall"
	"time"
)

// suspend stops the ranks, and then this process, as a terminal's Ctrl-Z stops a program.
// The ranks are in process groups of their own, of which the terminal knows nothing. SIGSTOP,
// since SIGTSTP does nothing to a group without a shell. SIGCONT has all go on.
func (s *supervisor) suspend() {
	s.limit.pause()
	s.signalAll(syscall.SIGSTOP)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // one may stop oneself
}

// limit is a time limit that does not run while the job is stopped. The zero limit is none.
type limit struct {
	timer *time.Timer
	end   time.Time
	left  time.Duration // while it is paused
}

func (l *limit) begin(d time.Duration) {
	l.timer, l.end = time.NewTimer(d), time.Now().Add(d)
}

// up is readable when the time is up.
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
