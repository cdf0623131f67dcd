package launch

import "github.com/ferrympi/ferry/bootstrap/local/server"

// An Observer follows a job for a display (`ferry run --watch`). Its methods may be called concurrently and with locks held. They
// neither block nor call Live.
type Observer interface {
	// Begin is called once, before the first rank starts.
	Begin(Live)
	// ObservePset receives the steps of operations on process sets, and of changes, in order.
	ObservePset(server.PsetEvent)
	// ObserveProc receives changes of ranks.
	ObserveProc(server.ProcEvent)
	// ObserveTraffic receives the answer of a rank to Live.RequestTraffic. It owns body, which may be invalid.
	ObserveTraffic(rank int, body []byte)
}

// Name of a rank's report of its counts of messages, and of the request for it (package mpi).
const trafficName = "traffic"

// Live is a running job. Its methods may be called concurrently, also after the end of the job.
type Live struct {
	// Programs and arguments.
	CommandLine string
	// Of a divided job, else 0 or 1.
	NodeCount int
	srv       *server.Server
	jobEnding <-chan struct{}
}

// IsEnding reports whether the job has begun to end.
func (l Live) IsEnding() bool { return (&controller{jobEnding: l.jobEnding}).isEnding() }

// Snapshot returns the state of the job with up to mostPsets of the latest process sets.
func (l Live) Snapshot(mostPsets int) server.Snapshot { return l.srv.Snapshot(mostPsets) }

// RequestTraffic requests the counts of messages from all connected ranks, and returns these ranks. The answers go to
// Observer.ObserveTraffic.
func (l Live) RequestTraffic() (ranks []int) { return l.srv.RequestDump(trafficName) }
