package mesh

import (
	"log/slog"
	"net"
	"sync"
	"time"
)

// refusalInterval is the least time between two log lines about refused connections. Anyone who can
// connect may do so ten thousand times in a second.
const refusalInterval = time.Minute

// refusalLog counts refused connections, and limits the log lines about them.
type refusalLog struct {
	mu    sync.Mutex
	total int
	// Value of total at the last line.
	loggedTotal int
	lastLogAt   time.Time
}

// record counts a refusal. It returns the number of refusals that the next line stands for, or 0 if
// none is due.
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

// logRefusal counts a refused connection, and logs the first one, and then one line per minute with
// their number. The others are logged at debug level.
func (c *client) logRefusal(nc net.Conn, err error) {
	args := []any{"from", nc.RemoteAddr().String(), "error", err}
	switch n := c.refusals.record(time.Now()); n {
	case 0:
		c.log.Log(c.ctx, slog.LevelDebug, "bootstrap mesh: a connection was refused", args...)
	case 1:
		c.log.Log(c.ctx, slog.LevelWarn, "bootstrap mesh: a connection was refused; further ones are counted", args...)
	default:
		c.log.Log(c.ctx, slog.LevelWarn, "bootstrap mesh: connections were refused", append(args, "count", n)...)
	}
}
