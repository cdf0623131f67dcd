package mesh

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
)

func TestOpen_SendsNothing(t *testing.T) {
	j := newTestJob(t, unix, 3)
	j.openAll()
	if n := j.finds.Load(); n != 0 {
		t.Errorf("%d entries were looked up", n)
	}
	for _, c := range j.clients {
		if len(c.links) > 0 {
			t.Errorf("rank %d has connections", c.id.Proc.Rank)
		}
	}
}

// The coordinator and a member reopen again and again.
func TestReopen_ContextIDs_NeverRepeat(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 2)
		ids := map[uint64]bool{}
		stay := j.open(1)
		heard := collectEvents(stay)
		for round := range 60 {
			c := j.open(0)
			group := []framework.Proc{j.proc(round % 2), j.proc(1 - round%2)}
			got := make([]uint64, 2)
			if err := inAll([]*client{c, stay}, func(c *client) error {
				made, err := c.Construct(t.Context(), group, "t", nil)
				got[c.id.Proc.Rank] = made.ContextID
				return err
			}); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			if got[0] != got[1] || ids[got[0]] {
				t.Fatalf("round %d: ids %x after %v", round, got, ids)
			}
			ids[got[0]] = true
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
		noEvent(t, heard)
	})
}

// Processes open in any order, and wait for the coordinator.
func TestCoordinator_OpensLate_JoinsComplete(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 3)
		first := j.open(0)
		if err := first.Close(); err != nil { // Its socket exists from now on.
			t.Fatal(err)
		}
		early := []*client{j.open(1), j.open(2)}
		waiting := make(chan error, 1)
		go func() {
			waiting <- inAll(early, func(c *client) error { return c.Fence(t.Context(), j.world(), "t") })
		}()
		eventually(t, "the others wait for the leader", func() bool {
			early[0].mu.Lock()
			defer early[0].mu.Unlock()
			p := early[0].peers[0]
			return p != nil && len(p.waitingCalls) == 1
		})
		late := j.open(0)
		if err := errors.Join(late.Fence(t.Context(), j.world(), "t"), <-waiting); err != nil {
			t.Fatal(err)
		}
	})
}

// A coordinator that closes is absent, and may reopen.
func TestCoordinator_Closes_JoinsWait(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 3)
		cs := j.openAll()
		j.fence("start", cs...)
		waiting := make(chan error, 1)
		go func() { waiting <- cs[1].Fence(t.Context(), j.world(), "t") }()
		eventually(t, "rank 1 waits at rank 0", func() bool {
			cs[0].mu.Lock()
			defer cs[0].mu.Unlock()
			return len(cs[0].joins.Absent()) == 2
		})
		if err := cs[0].Close(); err != nil {
			t.Fatal(err)
		}
		again := j.open(0)
		if err := errors.Join(inAll([]*client{again, cs[2]}, func(c *client) error { return c.Fence(t.Context(), j.world(), "t") }), <-waiting); err != nil {
			t.Fatal(err)
		}
	})
}

func TestCoordinator_Dies_JoinFails(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 4)
		cs := j.openAll()
		cs[0].BeginIncarnation(50)
		j.fence("start", cs...)
		heard := collectEvents(cs[3])
		errs := make(chan error, 2)
		for _, c := range cs[1:3] {
			go func() {
				_, err := c.Construct(t.Context(), j.world(), "t", []byte("payload"))
				errs <- err
			}()
		}
		eventually(t, "two wait at the leader", func() bool {
			cs[0].mu.Lock()
			defer cs[0].mu.Unlock()
			return len(cs[0].joins.Absent()) == 2
		})
		if err := cs[0].Crash(); err != nil {
			t.Fatal(err)
		}
		checkFailed(t, "a construct that waits", <-errs, j.proc(0))
		checkFailed(t, "another one", <-errs, j.proc(0))
		if e := nextEvent(t, heard); e.Kind != bootstrap.PeerFailed || e.Proc != j.proc(0) || e.Nonce != 50 {
			t.Errorf("event %+v", e)
		}
		checkFailed(t, "a construct that comes later", cs[3].Fence(t.Context(), j.world(), "t"), j.proc(0))
		j.fence("the living go on", cs[1:]...)
	})
}

// No process was connected to the member.
func TestMember_DiesBeforeConnecting_JoinFails(t *testing.T) {
	j := newTestJob(t, unix, 3)
	cs := j.openAll()
	if err := cs[2].Crash(); err != nil {
		t.Fatal(err)
	}
	err := inAll(cs[:2], func(c *client) error {
		checkFailed(t, fmt.Sprint("rank ", c.id.Proc.Rank), c.Fence(t.Context(), j.world(), "t"), j.proc(2))
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestCoordinator_DiesBeforeConnecting_JoinFails(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 2)
		cs := j.openAll()
		if err := cs[0].Crash(); err != nil {
			t.Fatal(err)
		}
		err := cs[1].Fence(t.Context(), j.world(), "t")
		if on == unix { // A socket without a listener shows the end of its process.
			checkFailed(t, "fence", err, j.proc(0))
		} else if !errors.Is(err, framework.ErrTransport) || !strings.Contains(err.Error(), "no process answers at its addresses") ||
			!strings.Contains(err.Error(), j.proc(0).String()) {
			t.Errorf("fence: %v", err)
		}
	})
}
