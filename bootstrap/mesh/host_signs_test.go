package mesh

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// remoteHosts returns the client of rank 0 of 4, in one group with ranks 1 and 2, which are on one
// host, and with rank 3 on another one. No attempt to connect to any of them ends.
func remoteHosts(t *testing.T) (c *client, events <-chan bootstrap.Event) {
	j := newTestJob(t, tcp, 4)
	j.nodes = 4
	c = j.open(0)
	c.mu.Lock()
	for rank := uint32(1); rank < 4; rank++ {
		c.peerOf(rank).isDialing = true
		c.entries[rank] = entry{nonce: uint64(rank), hostID: 70 + uint64(rank)/3, port: 9, addrs: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(rank)})}}
	}
	c.mu.Unlock()
	runs := wire.MakeRuns(j.world())
	c.recordJoined(string(wire.EncodeBody(runs)), runs)
	return c, collectEvents(c)
}

// breakConnection simulates the end of the only connection with rank, after the last sign.
func (c *client) breakConnection(rank uint32, lastSign time.Time) {
	p := c.peerOf(rank)
	p.hasConnected, p.usesTCP, p.lastSignAt = true, true, lastSign
	c.connectedRanks[rank] = struct{}{}
	c.suspectPeer(p, nil)
}

// checkHostsAt checks the hosts in steps of a tick between two times after start.
func (c *client) checkHostsAt(start time.Time, from, to time.Duration) {
	for at := from; at <= to; at += c.timeouts.host / 2 / maxSilentTicks {
		c.checkHosts(start.Add(at))
	}
}

// failedRanks returns the ranks that were reported dead.
func (c *client) failedRanks() (ranks []uint32) {
	for rank := range c.failures {
		ranks = append(ranks, rank)
	}
	slices.Sort(ranks)
	return ranks
}

// checkFailedRanks fails the test unless exactly those ranks were reported dead.
func (c *client) checkFailedRanks(t *testing.T, want ...uint32) {
	t.Helper()
	if dead := c.failedRanks(); !slices.Equal(dead, want) {
		t.Errorf("dead: %v, want %v", dead, want)
	}
}

// remoteHostsLocked is remoteHosts with the lock held until the end of the test, and with the
// connection to rank 1 broken.
func remoteHostsLocked(t *testing.T) (c *client, start time.Time) {
	c, _ = remoteHosts(t)
	c.mu.Lock()
	t.Cleanup(c.mu.Unlock)
	start = time.Now()
	c.breakConnection(1, start)
	return c, start
}

func TestHostTimeout_NoSign_AllProcessesOfHostFail(t *testing.T) {
	c, events := remoteHosts(t)
	start := time.Now()
	c.mu.Lock()
	c.breakConnection(1, start)
	c.checkHostsAt(start, c.timeouts.host/2, c.timeouts.host-1)
	before := c.failedRanks()
	c.checkHostsAt(start, c.timeouts.host, c.timeouts.host)
	after := c.failedRanks()
	c.mu.Unlock()
	if len(before) > 0 || !slices.Equal(after, []uint32{1, 2}) {
		t.Errorf("dead before the timeout: %v; and at the timeout: %v, want ranks 1 and 2", before, after)
	}
	for range 2 {
		if e := nextEvent(t, events); e.Kind != bootstrap.PeerFailed || !strings.Contains(e.Reason, "no sign of its host for 30s") {
			t.Errorf("event %+v", e)
		}
	}
}

// Members of an Exchange, or of a fence, have not received the entries of the others.
func TestHostTimeout_EntriesUnknown_AreLookedUp(t *testing.T) {
	c, _ := remoteHosts(t)
	start := time.Now()
	c.mu.Lock()
	for _, rank := range []uint32{2, 3} {
		e := c.entries[rank]
		c.launcher.(launcher).entries[c.id.Procs([]uint32{rank})[0]] = e.encode()
		delete(c.entries, rank)
	}
	c.breakConnection(1, start)
	c.checkHostsAt(start, c.timeouts.host/2, c.timeouts.host/2)
	c.mu.Unlock()
	eventually(t, "the entries are looked up", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.entries) == 3
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checkHostsAt(start, c.timeouts.host/2, 2*c.timeouts.host) // watchHosts may have reset the ticks.
	c.checkFailedRanks(t, 1, 2)
}

// The kernel may have received no sign for a long time because this process did not run, or the
// host of both was suspended.
func TestHostTimeout_OwnSuspension_LosesNoHost(t *testing.T) {
	c, start := remoteHostsLocked(t)
	c.checkHosts(start.Add(10 * c.timeouts.host))
	c.checkHostsAt(start, 10*c.timeouts.host, 10*c.timeouts.host+c.timeouts.host/2-time.Second)
	c.checkFailedRanks(t)
	c.peerOf(1).lastSignAt = start.Add(11 * c.timeouts.host)
	c.checkHostsAt(start, 11*c.timeouts.host, 11*c.timeouts.host+c.timeouts.host-1)
	c.checkFailedRanks(t)
}

func TestHostTimeout_ManyWakes_CountAsOneTick(t *testing.T) {
	c, start := remoteHostsLocked(t)
	for i := range 100 * maxSilentTicks {
		c.checkHosts(start.Add(10*c.timeouts.host + time.Duration(i)))
	}
	c.checkFailedRanks(t)
}

func TestHostTimeout_SignOverOtherConnection_OnlyProcessFails(t *testing.T) {
	c, start := remoteHostsLocked(t)
	c.breakConnection(2, start)
	for at := c.timeouts.host / 2; at <= c.timeouts.host; at += c.timeouts.host / 2 / maxSilentTicks {
		c.peerOf(2).lastSignAt = start.Add(at)
		c.checkHosts(start.Add(at))
	}
	c.checkFailedRanks(t, 1)
}

func TestDisconnect_PeerWithoutConnection_IsCheckedAtOnce(t *testing.T) {
	c, _ := remoteHosts(t)
	isSuspect := func(rank int) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.peerOf(uint32(rank)).state.isSuspect()
	}
	c.Disconnect(framework.Proc{Namespace: c.id.Proc.Namespace, Rank: 2}, 1, "no frame")
	if isSuspect(2) {
		t.Error("a process is suspect that nothing of its host was ever reached of")
	}
	start := time.Now()
	c.mu.Lock()
	c.connectedRanks[1] = struct{}{}
	c.mu.Unlock()
	c.Disconnect(framework.Proc{Namespace: c.id.Proc.Namespace, Rank: 2}, 1, "no frame")
	if !isSuspect(2) || isSuspect(3) {
		t.Error("the process that the transport has disconnected is not checked")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checkHostsAt(start, c.timeouts.host/2, c.timeouts.host+time.Second)
	c.checkFailedRanks(t, 1, 2)
}

// openOnNodes opens a rank of a job on two nodes. Processes of a node use Unix sockets, and others
// TCP.
func (j *testJob) openOnNodes(rank int) *client {
	j.t.Helper()
	base := 1<<63 + uint64(rank%j.nodes)
	c, err := openClient(j.t.Context(), j.env, launcher{j.addressBook, rank}, func(e *entry) error {
		e.hostID = base
		return nil
	})
	if err != nil {
		j.t.Fatal(err)
	}
	j.clients = append(j.clients, c)
	return c
}

// Only the node leader is connected to the coordinator, and all processes of the node die at once.
func TestNodeLeader_DiesWithNode_CoordinatorChecksOthers(t *testing.T) {
	j := newTestJob(t, tcp, 8)
	j.nodes = 2
	var cs []*client
	for rank := range j.size {
		cs = append(cs, j.openOnNodes(rank))
	}
	if err := inAll(cs, func(c *client) error {
		_, err := c.Construct(t.Context(), j.world(), "start", nil)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if cs[0].connectedTo(3) || !cs[0].connectedTo(1) {
		t.Fatal("the head is connected to others than the node leader: this shows nothing")
	}
	events := collectEvents(cs[2])
	if err := errors.Join(cs[1].Crash(), cs[3].Crash(), cs[5].Crash(), cs[7].Crash()); err != nil {
		t.Fatal(err)
	}
	dead := map[framework.Proc]bool{}
	for len(dead) < 4 {
		if e := nextEvent(t, events); e.Kind == bootstrap.PeerFailed {
			dead[e.Proc] = true
		}
	}
}
