package mpi

import (
	"slices"
	"testing"

	"github.com/ferrympi/ferry/framework"
)

func TestSumTraffic_StreamsAndIncarnations_AreOneEntryPerTransport(t *testing.T) {
	peer := func(namespace string, rank uint32, via string, n uint64) PeerStats {
		return PeerStats{Proc: framework.Proc{Namespace: namespace, Rank: rank}, Transport: via, Sent: n, Received: 2 * n, SentBytes: 3 * n, ReceivedBytes: 4 * n}
	}
	got := sumTraffic([]PeerStats{peer("job", 1, "shm", 1), peer("job", 2, "tcp", 5), peer("job", 1, "shm", 2), peer("other", 1, "shm", 7), peer("job", 1, "tcp", 4)}, "job")
	want := []peerTraffic{{1, "shm", 3, 6, 9, 12}, {2, "tcp", 5, 10, 15, 20}, {1, "tcp", 4, 8, 12, 16}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
