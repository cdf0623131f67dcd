package mesh

import (
	"testing"
	"time"
)

func TestRefusalLog_FloodOfConnections_LogsOneLine(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		j, lines := newLoggedJob(t, on, 1)
		c := j.openAll()[0]
		const connections = 300
		for range connections {
			rawDial(t, on, c).Close()
		}
		eventually(t, "all connections are refused", func() bool {
			c.refusals.mu.Lock()
			defer c.refusals.mu.Unlock()
			return c.refusals.total == connections
		})
		if n := lines.with("refused"); n != 1 {
			t.Errorf("%d lines in the log for %d connections: %q", n, connections, lines.lines)
		}
	})
}

func TestRefusalLog_AfterInterval_LineHasCount(t *testing.T) {
	var r refusalLog
	at := time.Now()
	for i, want := range []int{1, 0, 0} {
		if got := r.record(at); got != want {
			t.Errorf("refusal %d: a line for %d, want %d", i, got, want)
		}
	}
	if got := r.record(at.Add(refusalInterval)); got != 3 {
		t.Errorf("after the interval: a line for %d, want 3", got)
	}
}
