package bootstraptest

import (
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
)

func connectionCases() claimList {
	return claimList{
		kittest.New("LostHostFailsItsProcesses", Want{Size: 5, Timeout: longTimeout, Needs: Deaths | Subsets}, (*job).hostIsLost),
		kittest.New("BrokenConnectionsAreRestored", Want{Size: 4, Timeout: longTimeout}, (*job).connectionsBreak),
	}
}

// hostIsLost checks that all processes of a lost host are reported dead, also to processes without
// a connection to them, and that the others continue.
func (j *job) hostIsLost() {
	if j.LoseHost == nil {
		j.Skipf("the processes of this implementation are on one host")
	}
	lost, live := []int{3, 4}, []int{0, 1, 2}
	events := make([]<-chan bootstrap.Event, len(live))
	want := map[framework.Proc]uint64{}
	for _, rank := range lost {
		want[j.group(rank)[0]] = uint64(70 + rank)
		optional[bootstrap.EventSource](j, rank).BeginIncarnation(uint64(70 + rank))
		j.put(rank, "last", "words")
	}
	j.fenceAll("begun")
	for rank := range events {
		events[rank] = j.collectEvents(rank)
	}
	waiting := j.Go(func() {
		j.Each(len(live), func(rank int) {
			j.Is("a fence with the lost processes", j.Clients[rank].Fence(j.Context(), j.world(), "never"), framework.ErrProcFailed)
		})
	})
	j.Check(j.LoseHost(lost))
	waiting()
	for rank, ch := range events {
		dead := map[framework.Proc]uint64{}
		for len(dead) < len(want) {
			select {
			case e := <-ch:
				if _, twice := dead[e.Proc]; twice || e.Kind != bootstrap.PeerFailed || want[e.Proc] != e.Nonce || e.Reason == "" {
					j.Fatalf("rank %d: event %+v, want one death of each of %v", rank, e, want)
				}
				dead[e.Proc] = e.Nonce
			case <-j.Context().Done():
				j.Fatalf("rank %d: deaths %v, want %v", rank, dead, want)
			}
		}
	}
	j.Each(len(live), func(rank int) {
		j.fence(rank, "live", live...)
		j.get(rank, lost[rank%2], "last", "words")
	})
	for _, ch := range events {
		j.checkNoEvent(ch)
	}
}

// connectionsBreak checks that broken connections lose no revocation and no end of an incarnation,
// and that calls succeed afterwards.
func (j *job) connectionsBreak() {
	if j.Break == nil {
		j.Skipf("a broken connection is the death of a process of this implementation")
	}
	const rounds = 12
	events := make([]<-chan bootstrap.Event, len(j.Clients))
	for rank := range j.Clients {
		optional[bootstrap.EventSource](j, rank).BeginIncarnation(uint64(5 + rank))
		events[rank] = j.collectEvents(rank)
	}
	j.fenceAll("begun")
	for round := range rounds {
		from := round % len(j.Clients)
		proc, nonce := j.group(from)[0], uint64(5+round)
		broken := j.Go(func() { j.Check(j.Break(round % 3)) })
		revoked := bootstrap.Event{Kind: bootstrap.CommRevoked, Proc: proc, Nonce: nonce, Comm: cid.Extended{Base: uint64(round + 1)}}
		j.Check(optional[bootstrap.Revoker](j, from).Revoke(revoked.Comm, j.world()))
		optional[bootstrap.EventSource](j, from).EndIncarnation()
		for rank, ch := range events {
			if rank != from {
				j.checkNextTwo(rank, ch, revoked, bootstrap.Event{Kind: bootstrap.PeerLeft, Proc: proc, Nonce: nonce})
			}
		}
		broken()
		optional[bootstrap.EventSource](j, from).BeginIncarnation(nonce + uint64(len(j.Clients)))
		j.fenceAll(fmt.Sprint("restored ", round))
	}
}

// checkNextTwo fails unless the next events are the given ones, in any order.
func (j *job) checkNextTwo(rank int, ch <-chan bootstrap.Event, want ...bootstrap.Event) {
	var got []bootstrap.Event
	for len(got) < 2 {
		select {
		case e := <-ch:
			if got = append(got, e); !slices.Contains(want, e) || slices.Contains(got[:len(got)-1], e) {
				j.Fatalf("rank %d: events %+v, want %+v", rank, got, want)
			}
		case <-j.Context().Done():
			j.Fatalf("rank %d: events %+v, want %+v", rank, got, want)
		}
	}
}
