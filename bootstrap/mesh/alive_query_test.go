package mesh

import (
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
)

// stopReading stops a client from sending over its connections, as the suspension of its process
// would.
func (c *client) stopReading(t *testing.T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for l := range c.links {
		l.mu.Lock()
		t.Cleanup(l.mu.Unlock)
	}
}

func TestProcessTimeout_StoppedProcess_IsReportedDead(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 3)
		j.env.ProcessTimeout = 200 * time.Millisecond
		cs := j.openAll()
		j.fence("start", cs...)
		events := collectEvents(cs[2])
		cs[1].stopReading(t)
		e := nextEvent(t, events)
		if e.Kind != bootstrap.PeerFailed || e.Proc != j.proc(1) || !strings.Contains(e.Reason, "no query for 200ms") {
			t.Errorf("event %+v", e)
		}
		noEvent(t, events)
	})
}
