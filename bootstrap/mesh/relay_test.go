package mesh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
)

// openTwoNodes returns a job of 8 on two nodes, whose processes 1, 3, 5 and 7 have had a fence on
// theirs. Rank 0 coordinates joins of all, and rank 1 relays those of its node.
func openTwoNodes(t *testing.T, on network) (*testJob, []*client) {
	j := newTestJob(t, on, 8)
	j.nodes = 2
	cs := j.openAll()
	for r, c := range cs {
		c.BeginIncarnation(uint64(100 + r))
	}
	j.fence("node", cs[1], cs[3], cs[5], cs[7])
	return j, cs
}

func TestRelay_NodeHasOneConnectionToCoordinator(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		j, cs := openTwoNodes(t, on)
		for round := range 3 {
			err := inAll(cs, func(c *client) error {
				pay := bytes.Repeat([]byte{byte(c.id.Proc.Rank)}, 1000+round)
				got, err := c.Construct(t.Context(), j.world(), "t", pay)
				for r, p := range got.Payloads {
					if !bytes.Equal(p, bytes.Repeat([]byte{byte(r)}, 1000+round)) {
						err = fmt.Errorf("payload of rank %d is %x", r, p[:8])
					}
					clear(p) // The caller owns it.
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range []int{3, 5, 7} {
			if cs[0].connectedTo(r) || !cs[1].connectedTo(r) {
				t.Errorf("rank %d is connected with the leader: %t, with rank 1: %t", r, cs[0].connectedTo(r), cs[1].connectedTo(r))
			}
		}
	})
}

// Relayed members have the deadlines, names and withdrawals of direct ones.
func TestRelay_DeadlinesNamesWithdrawals_AreThoseOfDirectJoins(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		j, cs := openTwoNodes(t, on)
		atLeader := func(n int) func() bool {
			return func() bool {
				cs[0].mu.Lock()
				defer cs[0].mu.Unlock()
				absent := cs[0].joins.Absent()
				return len(absent) == n || n == 8 && len(absent) == 0
			}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("a cause")
		done := make(chan error, 3)
		go func() { done <- cs[3].Fence(ctx, j.world(), "t") }()
		eventually(t, "rank 3 waits at rank 0", atLeader(7))
		cancel(cause)
		if err := <-done; !errors.Is(err, cause) || errors.Is(err, framework.ErrTimeout) {
			t.Errorf("%v", err)
		}
		eventually(t, "nothing waits at rank 0", atLeader(8))

		cs[5].timeouts.call = 300 * time.Millisecond
		for _, r := range []int{3, 5, 2} {
			go func() { done <- cs[r].Fence(t.Context(), j.world(), "t") }()
		}
		for range 3 {
			var m *framework.MissingError
			err := <-done
			if !errors.As(err, &m) || !slices.Equal(m.Missing, []framework.Proc{j.proc(0), j.proc(1), j.proc(4), j.proc(6), j.proc(7)}) {
				t.Errorf("%v, want ranks 0, 1, 4, 6 and 7", err)
			}
		}
		cs[5].timeouts.call = j.env.Timeout
		j.fence("t", cs...)
	})
}

func TestDeadline_MemberBehindAbsentRelay_IsNotMissing(t *testing.T) {
	j := newTestJob(t, unix, 6)
	j.nodes = 2
	j.env.Timeout = 2 * time.Second
	cs := []*client{j.open(0), j.open(5)}
	err := inAll(cs, func(c *client) error {
		err := c.Fence(t.Context(), []framework.Proc{j.proc(0), j.proc(2), j.proc(3), j.proc(5)}, "t")
		var m *framework.MissingError
		if !errors.As(err, &m) || !slices.Equal(m.Missing, []framework.Proc{j.proc(2), j.proc(3)}) {
			return fmt.Errorf("%w, want ranks 2 and 3", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestRelay_Deaths_FailJoins(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		for what, victim := range map[string]int{"one who is passed on": 5, "who passes on": 1, "the leader": 0} {
			t.Run(what, func(t *testing.T) {
				j, cs := openTwoNodes(t, on)
				j.fence("start", cs...)
				heard := []<-chan bootstrap.Event{collectEvents(cs[2]), collectEvents(cs[7])}
				waiting := []*client{cs[2], cs[3], cs[7]}
				done := make(chan error, 1)
				go func() {
					done <- inAll(waiting, func(c *client) error {
						checkFailed(t, fmt.Sprint("rank ", c.id.Proc.Rank), c.Fence(t.Context(), j.world(), "t"), j.proc(victim))
						return nil
					})
				}()
				eventually(t, "three wait at the leader", func() bool {
					cs[0].mu.Lock()
					defer cs[0].mu.Unlock()
					return len(cs[0].joins.Absent()) == 5
				})
				if err := cs[victim].Crash(); err != nil {
					t.Fatal(err)
				}
				<-done
				for _, ch := range heard {
					if e := nextEvent(t, ch); e.Kind != bootstrap.PeerFailed || e.Proc != j.proc(victim) || e.Nonce != uint64(100+victim) {
						t.Errorf("event %+v", e)
					}
				}
				living := slices.DeleteFunc(slices.Clone(cs), func(c *client) bool { return c == cs[victim] })
				j.fence("the living go on", living...)
				cs[7].ReportBroken(cid.Extended{Base: 9}, j.world(), "a reason")
				if e := nextEvent(t, heard[0]); e.Kind != bootstrap.CommBroken {
					t.Errorf("event %+v", e)
				}
				noEvent(t, heard[1])
			})
		}
	})
}

// The relay closes and reopens, and its members use the coordinator meanwhile.
func TestRelay_Closes_MembersUseCoordinator(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		j, cs := openTwoNodes(t, on)
		j.fence("start", cs...)
		waiting := []*client{cs[3], cs[5], cs[7]}
		done := make(chan error, 1)
		go func() {
			done <- inAll(waiting, func(c *client) error { return c.Fence(t.Context(), j.world(), "t") })
		}()
		here := func() bool {
			cs[0].mu.Lock()
			defer cs[0].mu.Unlock()
			return len(cs[0].joins.Absent()) == 5
		}
		eventually(t, "three wait at the leader", here)
		if err := cs[1].Close(); err != nil {
			t.Fatal(err)
		}
		// Otherwise the coordinator would answer these calls in place of the next ones.
		cs[0].mu.Lock()
		for l := range cs[0].links {
			if l.rank == 1 {
				t.Errorf("%d calls of the closed relay wait at the coordinator", len(l.pendingRequests))
			}
		}
		cs[0].mu.Unlock()
		eventually(t, "three wait at the leader by themselves", func() bool {
			return here() && cs[0].connectedTo(3) && cs[0].connectedTo(5) && cs[0].connectedTo(7)
		})
		all := []*client{cs[0], j.open(1), cs[2], cs[4], cs[6]}
		if err := errors.Join(inAll(all, func(c *client) error { return c.Fence(t.Context(), j.world(), "t") }), <-done); err != nil {
			t.Fatal(err)
		}
	})
}

func TestEvents_NodeLeaderHasEnded_ReachNode(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		for what, goes := range map[string]func(*client) error{"dies": (*client).Crash, "closes": (*client).Close} {
			t.Run(what, func(t *testing.T) {
				j, cs := openTwoNodes(t, on)
				j.fence("start", cs...)
				if err := goes(cs[1]); err != nil {
					t.Fatal(err)
				}
				eventually(t, "5 and 7 are connected with 3, and that with 0", func() bool {
					return cs[3].knowsIncarnation(5) && cs[3].knowsIncarnation(7) && cs[3].connectedTo(0)
				})
				heard := collectEvents(cs[6])
				if err := cs[7].Crash(); err != nil {
					t.Fatal(err)
				}
				for {
					if e := nextEvent(t, heard); e.Kind == bootstrap.PeerFailed && e.Proc == j.proc(7) && e.Nonce == 107 {
						return
					}
				}
			})
		}
	})
}

// A member may close and end once it has the result of a join.
func TestJoin_MemberEndsAfterResult_OthersComplete(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		for round := range 24 {
			j := newTestJob(t, on, 40)
			j.nodes = 1 + round%3
			group := j.world()
			if round%2 == 1 {
				slices.Reverse(group)
			}
			err := inAll(j.openAll(), func(c *client) error {
				for range 2 {
					if _, err := c.Construct(t.Context(), group, "t", make([]byte, 100)); err != nil {
						return err
					}
				}
				return errors.Join(c.Close(), c.Crash())
			})
			if err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
	})
}
