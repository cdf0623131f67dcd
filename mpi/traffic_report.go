package mpi

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
)

// A traffic report has the counts of messages of a process. The launcher requests it while a user views the job (`ferry run --watch`).

// trafficReport is the content of the report. Package watch of the command reads it.
type trafficReport struct {
	// Monotonic time of the counts in nanoseconds.
	At int64 `json:"at"`
	// Number of open communicators.
	Comms int           `json:"comms"`
	Peers []peerTraffic `json:"peers"`
	// Peers that are not listed.
	More int `json:"more,omitempty"`
}

// peerTraffic counts the messages between this process and a rank of its job over one transport.
type peerTraffic struct {
	Rank          uint32 `json:"rank"`
	Transport     string `json:"via"`
	Sent          uint64 `json:"sent"`
	Received      uint64 `json:"received"`
	SentBytes     uint64 `json:"sentBytes"`
	ReceivedBytes uint64 `json:"receivedBytes"`
}

// trafficName is the name of the report, and of the request for it. Package launch of the command has the same constant.
const trafficName = "traffic"

// mostTrafficPeers is the number of peers in a report. The ones with the most messages have precedence.
const mostTrafficPeers = 64

// sendTraffic sends the report to the launcher if it takes reports. An error is ignored.
func (e *process) sendTraffic() {
	to, ok := framework.As[bootstrap.Reporter](e.Client())
	if !ok {
		return
	}
	body, err := json.Marshal(e.trafficReport())
	if err != nil || len(body) > bootstrap.MaxValue {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), reportGrace)
	defer cancel()
	_ = to.Report(ctx, trafficName, body) // The next request follows in a second.
}

func (e *process) trafficReport() trafficReport {
	all := e.peerStats()
	e.mu.Lock()
	r := trafficReport{At: int64(cpu.Monotonic()), Comms: len(e.openComms)}
	e.mu.Unlock()
	r.Peers = sumTraffic(all, e.identity.Proc.Namespace)
	slices.SortStableFunc(r.Peers, func(a, b peerTraffic) int { return cmp.Compare(b.Sent+b.Received, a.Sent+a.Received) })
	if r.More = max(0, len(r.Peers)-mostTrafficPeers); r.More > 0 {
		r.Peers = r.Peers[:mostTrafficPeers]
	}
	return r
}

// sumTraffic adds the counts of streams and incarnations for each rank of a job and transport.
func sumTraffic(stats []PeerStats, namespace string) []peerTraffic {
	type key struct {
		rank      uint32
		transport string
	}
	sums, order := map[key]int{}, []peerTraffic{}
	for _, p := range stats {
		if p.Proc.Namespace != namespace {
			continue
		}
		k := key{p.Proc.Rank, p.Transport}
		i, ok := sums[k]
		if !ok {
			i = len(order)
			sums[k], order = i, append(order, peerTraffic{Rank: k.rank, Transport: k.transport})
		}
		t := &order[i]
		t.Sent, t.Received = t.Sent+p.Sent, t.Received+p.Received
		t.SentBytes, t.ReceivedBytes = t.SentBytes+p.SentBytes, t.ReceivedBytes+p.ReceivedBytes
	}
	return order
}
