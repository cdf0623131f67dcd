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

// refusedConns counts refused connections, and limits the lines about them.
type refusedConns struct {
	mu     sync.Mutex
	total  int
	logged int       // Of total, when the last line was logged.
	lastAt time.Time // Of the last line.
}

// count adds a refusal. It returns the number of refusals that the next line stands for, or 0 if there is no
// line now.
func (r *refusedConns) count(now time.Time) (since int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total++
	if r.logged > 0 && now.Sub(r.lastAt) < refusalInterval {
		return 0
	}
	since = r.total - r.logged
	r.logged, r.lastAt = r.total, now
	return since
}

// refuse counts a refused connection, and logs the first, and then one a minute with their number. Others
// are logged for debugging.
func (c *client) refuse(nc net.Conn, err error) {
	args := []any{"from", nc.RemoteAddr().String(), "error", err}
	switch n := c.refused.count(time.Now()); n {
	case 0:
		c.log.Log(c.ctx, slog.LevelDebug, "bootstrap meet: a connection was refused", args...)
	case 1:
		c.log.Log(c.ctx, slog.LevelWarn, "bootstrap meet: a connection was refused; further ones are counted", args...)
	default:
		c.log.Log(c.ctx, slog.LevelWarn, "bootstrap meet: connections were refused", append(args, "count", n)...)
	}
}
