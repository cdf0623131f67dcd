package mesh

import (
	"github.com/ferrympi/ferry/bootstrap/internal/queries"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// sendAliveQueries sends a query over each connection, and reports processes that have left queries
// unanswered for the process timeout. Processes of a silent host are exempt.
func (c *client) sendAliveQueries() {
	c.mu.Lock()
	defer c.mu.Unlock()
	answers := 2 * queries.Period(c.timeouts.process) // The kernel of a host acknowledges a query sooner.
	for l := range c.links {
		silence, isRemote := l.sinceLastSign()
		switch p := c.peerOf(l.rank); {
		case p.state == peerEnded || l.receivedGoodbye || isRemote && silence >= answers:
		case l.queries.Tick():
			c.concludeEnded(p, queries.Reason(c.timeouts.process))
		default:
			l.sendLossy(encodeFrame(wire.AliveQuery, 0, wire.Empty{}))
		}
	}
}
