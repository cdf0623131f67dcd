package local

import (
	"net"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/bootstrap/local/server"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
)

// groupOf returns processes of a job.
func (j *job) groupOf(ranks ...uint32) (group []framework.Proc) {
	for _, r := range ranks {
		group = append(group, framework.Proc{Namespace: j.srv.Namespace(), Rank: r})
	}
	return group
}

func TestRevoke_MemberHasNoClient_ReceivesItOnceWithItsNextOne(t *testing.T) {
	j := testJob(t, server.Options{Size: 3})
	revoker := j.open(t, 0).(*client)
	left := listen(t, revoker)
	closed := j.open(t, 1).(*client)
	closed.BeginIncarnation(5)
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	if e := next(t, left); e.Kind != bootstrap.PeerLeft { // The server has read the end of the connection.
		t.Fatalf("event %+v, want PeerLeft", e)
	}
	comms := []cid.Extended{{Base: 1}, {Base: 2}}
	for _, comm := range comms {
		if err := revoker.Revoke(comm, j.groupOf(2, 0, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := revoker.Fence(t.Context(), j.groupOf(0), "revoked"); err != nil {
		t.Fatal(err)
	}
	for _, rank := range []int{1, 2} {
		for opens := range 2 {
			c := j.open(t, rank)
			if err := c.Fence(t.Context(), j.groupOf(uint32(rank)), "opened"); err != nil { // The events arrive before OnEvent.
				t.Fatal(err)
			}
			events := listen(t, c)
			for i := 0; i < len(comms) && opens == 0; i++ {
				if e := next(t, events); e != (bootstrap.Event{Kind: bootstrap.CommRevoked, Proc: j.groupOf(0)[0], Comm: comms[i]}) {
					t.Errorf("rank %d: event %+v, want revocation %d", rank, e, i)
				}
			}
			j.srv.Dump() // Arrives last.
			if e := next(t, events); e.Kind != bootstrap.Dump {
				t.Errorf("rank %d: an extra event: %+v", rank, e)
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestRevoke_LauncherDoesNotRead_IsSentNevertheless(t *testing.T) {
	a, s := net.Pipe()
	id := bootstrap.Identity{Proc: framework.Proc{Namespace: "job"}, Size: 2, LocalSize: 1, LocalRanks: []uint32{0, 1}}
	welcome, err := wire.Encode(wire.Welcome, 0, wire.WelcomeBody{Size: 2})
	if err != nil {
		t.Fatal(err)
	}
	r := wire.NewReader(s, wire.MaxFrame)
	go func() {
		_, _ = r.Next()
		_, _ = s.Write(welcome)
	}()
	c, err := connect(t.Context(), a, id, "token", bootstrap.Env{})
	if err != nil {
		t.Fatal(err)
	}
	peer := framework.Proc{Namespace: "job", Rank: 1}
	const notes = 2 * maxLossyBytes / bootstrap.MaxPayload
	for range notes {
		if err := c.Note(peer, 1, make([]byte, bootstrap.MaxPayload)); err != nil {
			t.Fatal(err)
		}
	}
	revoked := make(chan error, 1)
	go func() { revoked <- c.Revoke(cid.Extended{Base: 7}, []framework.Proc{id.Proc, peer}) }()
	for n := 0; ; n++ {
		m, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if m.Kind == wire.Note {
			continue
		}
		b, err := wire.Decode[wire.ReportCommEventBody](m.Body)
		if err != nil || m.Kind != wire.ReportCommEvent || b.Kind != uint8(bootstrap.CommRevoked) || n >= notes {
			t.Errorf("after %d notes: kind %d, %+v, %v; want the revocation, and fewer notes than sent", n, m.Kind, b, err)
		}
		break
	}
	if err := <-revoked; err != nil {
		t.Error(err)
	}
	s.Close()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
