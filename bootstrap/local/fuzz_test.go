package local

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/bootstrap/local/server"
	"github.com/ferrympi/ferry/framework"
)

// Whatever a server sends, calls of a client end with an error, without a panic.
func FuzzClientReads(f *testing.F) {
	for _, m := range []struct {
		k  wire.Kind
		id uint64
		b  any
	}{
		{wire.Welcome, 0, wire.WelcomeBody{Size: 2}},
		{wire.Reply, 1, wire.ConstructedBody{ContextID: 1, Payloads: [][]byte{{1}, {2}}}},
		{wire.Reply, 1, wire.ConstructedBody{}},
		{wire.Failure, 1, wire.FailureBody{Code: wire.CodeMissing, Missing: []uint32{1}}},
		{wire.Failure, 1, wire.FailureBody{Code: 99}},
		{wire.Event, 0, wire.EventBody{Kind: uint8(bootstrap.PeerFailed), Rank: 1, Reason: "r"}},
		{wire.Event, 0, wire.EventBody{Kind: uint8(bootstrap.PeerFailed), Reason: "r"}},
		{wire.Event, 0, wire.EventBody{Kind: uint8(bootstrap.CommRevoked), Rank: 1, Comm: [16]byte{1}}},
		{wire.Refused, 0, wire.RefusedBody{Reason: "no"}},
		{wire.Goodbye, 0, wire.Empty{}},
	} {
		frame, err := wire.Encode(m.k, m.id, m.b)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(frame)
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, s := net.Pipe()
		id := bootstrap.Identity{Proc: framework.Proc{Namespace: "job"}, Size: 2, LocalSize: 1, LocalRanks: []uint32{0, 1}}
		welcome, err := wire.Encode(wire.Welcome, 0, wire.WelcomeBody{Size: 2})
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan struct{})
		go func() {
			defer close(served)
			defer s.Close()
			r := wire.NewReader(s, wire.MaxHello)
			if _, err := r.Next(); err != nil {
				return
			}
			if _, err := s.Write(welcome); err != nil {
				return
			}
			if _, err := r.Next(); err != nil { // The construct.
				return
			}
			s.Write(b) // The client may have closed.
		}()
		c, err := connect(t.Context(), a, id, "token", bootstrap.Env{})
		if err != nil {
			t.Fatal(err)
		}
		c.OnEvent(func(bootstrap.Event) {})
		group := []framework.Proc{{Namespace: "job"}, {Namespace: "job", Rank: 1}}
		got, err := c.Construct(t.Context(), group, "t", nil)
		if err == nil && (got.ContextID == 0 || len(got.Payloads) != 2) {
			t.Errorf("accepted %+v", got)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		<-served
	})
}

// The server continues to serve other members after any message of one member.
func FuzzServerReads(f *testing.F) {
	group := wire.EncodeBody(wire.Runs{{Namespace: "job", First: 0, Stride: 1, Count: 2}})
	for _, m := range []struct {
		k  wire.Kind
		id uint64
		b  any
	}{
		{wire.Put, 0, wire.ValuedBody{Name: "k", Value: []byte("v")}},
		{wire.Get, 1, wire.GetBody{Rank: 1, Key: "k"}},
		{wire.Construct, 2, wire.JoinBody{Tag: "t", Group: group, Payload: []byte("p")}},
		{wire.Fence, 3, wire.JoinBody{Tag: "t", Group: []byte{0x81, 0x83, 0x63, 'j', 'o', 'b', 0, 0x1a, 255, 255, 255, 255}}},
		{wire.Cancel, 2, wire.CancelBody{Expired: true}},
		{wire.Publish, 4, wire.ValuedBody{Name: "n"}},
		{wire.Unpublish, 4, wire.NameBody{Name: "n"}},
		{wire.Lookup, 5, wire.LookupBody{Name: "n", Wait: true}},
		{wire.Psets, 6, wire.Empty{}},
		{wire.Pset, 7, wire.NameBody{Name: "n"}},
		{wire.Report, 8, wire.ValuedBody{Name: "n"}},
		{wire.Change, 9, wire.ChangeBody{Op: wire.Operate, Args: wire.EncodeBody(wire.OperateBody{Op: uint8(bootstrap.PsetShrink), Operands: []string{"mpi://WORLD"}, Sub: 1})}},
		{wire.Change, 10, wire.ChangeBody{Op: wire.Query, Args: wire.EncodeBody(wire.LookupBody{Name: "mpi://SELF", Wait: true})}},
		{wire.AliveAnswer, 0, wire.Empty{}},
		{wire.Note, 0, wire.NoteBody{To: 1, Body: []byte("b")}},
		{wire.ReportCommEvent, 0, wire.ReportCommEventBody{Kind: uint8(bootstrap.CommRevoked), Comm: [16]byte{1}, Ranks: []uint32{0, 1, 1, 7}}},
		{wire.ReportCommEvent, 0, wire.ReportCommEventBody{Kind: uint8(bootstrap.CommBroken), Comm: [16]byte{1}, Ranks: []uint32{0}}},
		{wire.Change, 11, wire.ChangeBody{Op: wire.Integrate, Args: wire.EncodeBody(wire.IntegrateBody{Delta: "ferry://delta/1"})}},
		{wire.Goodbye, 0, wire.Empty{}},
	} {
		frame, err := wire.Encode(m.k, m.id, m.b)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(frame)
	}
	base := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		j, err := newJob(base, server.Options{Size: 2, Namespace: "job"})
		if err != nil {
			t.Fatal(err)
		}
		good := j.open(t, 0)
		bad, err := j.dial(t.Context(), 1, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		raw := bad.(*client).conn
		raw.Write(b) // The server may have closed.
		raw.Close()
		// This returns when the server has read all of b, and found the end.
		j.srv.ProcExited(1, "signal: killed")
		_, err = good.Get(t.Context(), framework.Proc{Namespace: "job", Rank: 1}, "never put")
		if err != nil && !errors.Is(err, framework.ErrProcFailed) { // nil: b may have put it
			t.Error(err)
		}
		if err := good.Fence(t.Context(), []framework.Proc{{Namespace: "job"}}, "t"); err != nil {
			t.Error(err)
		}
		if err := errors.Join(bad.Close(), j.close()); err != nil {
			t.Error(err)
		}
	})
}
