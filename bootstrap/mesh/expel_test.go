package mesh

import (
	"errors"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
)

func TestReportedDead_ProcessContinues_IsDiscarded(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 3)
		c := j.open(0)
		c.BeginIncarnation(5)
		nc, r := impostor(t, on, c, 2)
		if _, err := nc.Write(encodeFrame(wire.Incarnation, 0, wire.IncarnationBody{Nonce: 7})); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the incarnation is known", func() bool { return c.knowsIncarnation(2) })
		events := collectEvents(c)
		c.report(2, "test")
		if e := nextEvent(t, events); e != (bootstrap.Event{Kind: bootstrap.PeerFailed, Proc: j.proc(2), Nonce: 7, Reason: "test"}) {
			t.Errorf("event %+v, want the death", e)
		}
		for { // After the Incarnation of the other end.
			m, err := r.Next()
			if err != nil {
				t.Fatalf("the connection ends without the event: %v", err)
			}
			if m.Kind == wire.Event {
				if ev, err := wire.Decode[wire.EventBody](m.Body); err != nil || ev.Rank != 2 || ev.Kind != uint8(bootstrap.PeerFailed) {
					t.Errorf("event %+v, %v", ev, err)
				}
				break
			}
		}
		members := wire.Runs{{Namespace: j.namespace, Stride: 1, Count: 3}}
		for _, frame := range [][]byte{
			encodeFrame(wire.Note, 0, wire.NoteBody{To: 5}), encodeFrame(wire.Disconnect, 0, wire.DisconnectBody{Nonce: 5}), encodeFrame(wire.Event, 0, wire.EventBody{Kind: uint8(bootstrap.PeerLeft), Rank: 2, Nonce: 7}),
			encodeFrame(wire.CommEvent, 0, wire.CommEventBody{Event: wire.EventBody{Kind: uint8(bootstrap.CommBroken), Rank: 2}, Members: members}),
			encodeFrame(wire.CommEvent, 0, wire.CommEventBody{Event: wire.EventBody{Kind: uint8(bootstrap.CommRevoked), Rank: 2}, Members: members}),
			encodeFrame(wire.Event, 0, wire.EventBody{Kind: uint8(bootstrap.PeerFailed), Rank: 1, Reason: "false"}),
			encodeFrame(wire.Goodbye, 0, wire.Empty{}),
		} {
			if _, err := nc.Write(frame); err != nil {
				t.Fatal(err)
			}
		}
		if nc, ok := nc.(interface{ CloseWrite() error }); ok {
			if err := nc.CloseWrite(); err != nil {
				t.Fatal(err)
			}
		}
		checkClosed(t, "the dead process", nc)
		noEvent(t, events)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestReportedDead_Reconnects_ReceivesEventInPlaceOfWelcome(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 3)
		cs := j.openAll()
		cs[2].BeginIncarnation(9)
		events := collectEvents(cs[2])
		cs[0].report(2, "test") // They have no connection.
		cs[1].report(2, "test")
		err := cs[2].Fence(t.Context(), []framework.Proc{j.proc(0), j.proc(2)}, "t")
		if !errors.Is(err, framework.ErrProcFailed) {
			t.Errorf("fence: %v, want ErrProcFailed", err)
		}
		if e := nextEvent(t, events); e != (bootstrap.Event{Kind: bootstrap.PeerFailed, Proc: j.proc(2), Nonce: 9, Reason: "test"}) {
			t.Errorf("event %+v, want this process's own PeerFailed", e)
		}
		err = cs[2].Fence(t.Context(), []framework.Proc{j.proc(1), j.proc(2)}, "t")
		checkFailed(t, "fence", err, j.proc(2))
		if err := cs[2].Revoke(cid.Extended{}, j.world()); !errors.Is(err, framework.ErrProcFailed) {
			t.Errorf("revoke: %v, want ErrProcFailed", err)
		}
		if err := cs[2].Close(); err != nil {
			t.Error(err)
		}
		if c, err := openOn(t.Context(), on, launcher{j.addressBook, 2}, j.env); !errors.Is(err, framework.ErrProcFailed) {
			t.Errorf("it opens a client again: %v, %v; want ErrProcFailed", c, err)
		}
		j.fence("live", cs[0], cs[1])
	})
}

func TestReportedDead_PeerLacksReport_ReceivesIt(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 4)
		cs := j.openAll()
		for r, c := range cs {
			c.BeginIncarnation(uint64(100 + r))
		}
		j.fence("start", cs[1], cs[2]) // Rank 0 has no connection.
		connected, later := collectEvents(cs[1]), collectEvents(cs[3])
		cs[2].receiveLauncherEvent(bootstrap.Event{Kind: bootstrap.PeerFailed, Proc: j.proc(2), Reason: "wrong"})
		died := bootstrap.Event{Kind: bootstrap.PeerFailed, Proc: j.proc(2), Nonce: 102, Reason: "wrong"}
		if e := nextEvent(t, connected); e != died {
			t.Errorf("a connected process: event %+v, want %+v", e, died)
		}
		checkFailed(t, "fence", cs[3].Fence(t.Context(), []framework.Proc{j.proc(2), j.proc(3)}, "t"), j.proc(2))
		if e := nextEvent(t, later); e != died {
			t.Errorf("a process that connects later: event %+v, want %+v", e, died)
		}
	})
}

func TestReportedDead_FenceThroughExchange_Ends(t *testing.T) {
	_, cs := newExchangeJob(t, false, 2, 0)
	world := []framework.Proc{cs[0].id.Proc, cs[1].id.Proc}
	done := make(chan error, 1)
	go func() { done <- cs[0].Fence(t.Context(), world, "t") }()
	eventually(t, "the fence waits", func() bool {
		cs[0].mu.Lock()
		defer cs[0].mu.Unlock()
		return len(cs[0].exchangeRounds) == 1
	})
	cs[0].report(0, "test")
	checkFailed(t, "the fence", <-done, cs[0].id.Proc)
	checkFailed(t, "the next fence", cs[0].Fence(t.Context(), world, "t"), cs[0].id.Proc)
}
