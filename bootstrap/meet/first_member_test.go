package meet

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
)

func TestOpenSendsNothingToAnybody(t *testing.T) {
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

// The leader comes again and again, and so does a member; ids never repeat.
func TestSessionsReopen(t *testing.T) {
	both(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 2)
		ids := map[uint64]bool{}
		stay := j.open(1)
		heard := listen(stay)
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

// Processes come in any order; those who are there wait for the leader.
func TestLeaderThatComesLate(t *testing.T) {
	both(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 3)
		first := j.open(0)
		if err := first.Close(); err != nil { // it was there once: its socket is
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

// A leader that closes while others wait in its joins is absent, and may come again.
func TestLeaderThatClosesMeanwhile(t *testing.T) {
	both(t, func(t *testing.T, on network) {
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

func TestLeaderThatDiesEndsTheJoin(t *testing.T) {
	both(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 4)
		cs := j.openAll()
		cs[0].Begin(50)
		j.fence("start", cs...)
		heard := listen(cs[3])
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
		failed(t, "a construct that waits", <-errs, j.proc(0))
		failed(t, "another one", <-errs, j.proc(0))
		if e := next(t, heard); e.Kind != bootstrap.ProcDied || e.Proc != j.proc(0) || e.Nonce != 50 {
			t.Errorf("event %+v", e)
		}
		failed(t, "a construct that comes later", cs[3].Fence(t.Context(), j.world(), "t"), j.proc(0))
		j.fence("the living go on", cs[1:]...)
	})
}

// Nobody was ever connected with the member: the leader finds out.
func TestMemberThatDiesBeforeItWasMet(t *testing.T) {
	j := newTestJob(t, unix, 3)
	cs := j.openAll()
	if err := cs[2].Crash(); err != nil {
		t.Fatal(err)
	}
	err := inAll(cs[:2], func(c *client) error {
		failed(t, fmt.Sprint("rank ", c.id.Proc.Rank), c.Fence(t.Context(), j.world(), "t"), j.proc(2))
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestLeaderThatDiedBeforeItWasMet(t *testing.T) {
	both(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 2)
		cs := j.openAll()
		if err := cs[0].Crash(); err != nil {
			t.Fatal(err)
		}
		err := cs[1].Fence(t.Context(), j.world(), "t")
		if on == unix { // where nobody listens nobody is
			failed(t, "fence", err, j.proc(0))
		} else if !errors.Is(err, framework.ErrTransport) || !strings.Contains(err.Error(), "nobody answers for its entry") ||
			!strings.Contains(err.Error(), j.proc(0).String()) {
			t.Errorf("fence: %v", err)
		}
	})
}
