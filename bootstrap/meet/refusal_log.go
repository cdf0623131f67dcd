package meet

import (
	"log/slog"
	"net"
	"sync"
	"time"
)

// refusalInterval is the least time between two lines about refused connections in the log. Anyone who can
// connect may do so ten thousand times in a second.
const refusalInterval = time.Minute

// refusalLog counts refused connections, and limits the lines about them.
type refusalLog struct {
	mu          sync.Mutex
	total       int
	loggedTotal int       // Of total, when the last line was logged.
	lastLogAt   time.Time // Of the last line.
}

// count adds a refusal. It returns the number of refusals that the next line stands for, or 0 if there is no
// line now.
func (r *refusalLog) record(now time.Time) (since int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total++
	if r.loggedTotal > 0 && now.Sub(r.lastLogAt) < refusalInterval {
		return 0
	}
	since = r.total - r.loggedTotal
	r.loggedTotal, r.lastLogAt = r.total, now
	return since
}

// refuse counts a refused connection, and logs the first, and then one a minute with their number. Others
// are logged for debugging.
func (c *client) logRefusal(nc net.Conn, err error) {
	args := []any{"from", nc.RemoteAddr().String(), "error", err}
	switch n := c.refusals.record(time.Now()); n {
	case 0:
		c.log.Log(c.ctx, slog.LevelDebug, "bootstrap meet: a connection was refused", args...)
	case 1:
		c.log.Log(c.ctx, slog.LevelWarn, "bootstrap meet: a connection was refused; further ones are counted", args...)
	default:
		c.log.Log(c.ctx, slog.LevelWarn, "bootstrap meet: connections were refused", append(args, "count", n)...)
	}
}
