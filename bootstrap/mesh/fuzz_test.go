package mesh

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/calls"
	"github.com/ferrympi/ferry/bootstrap/internal/events"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

func FuzzEntry(f *testing.F) {
	e := entry{nonce: 1, hostID: 2, port: 3, addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}}
	f.Add(e.encode())
	f.Add((&entry{nonce: 1, hostID: 2}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := decodeEntry(b)
		if err == nil && !bytes.Equal(e.encode(), b) {
			t.Errorf("%x is read as %x", b, e.encode())
		}
	})
}

// Without the key, every connection is refused.
func FuzzHandshake(f *testing.F) {
	p := &endpoint{id: bootstrap.Identity{Proc: framework.Proc{Namespace: "job"}, Size: 2}}
	p.ownEntry.nonce, p.ownEntry.key = 5, [keySize]byte{1, 2, 3}
	h := hello{from: 1, to: 0, fromNonce: 9, toNonce: 5}
	f.Add(h.encode())
	f.Add(append(h.encode(), make([]byte, proofSize)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := p.proveAsAcceptor(said{bytes.NewReader(b), io.Discard}, p.ownEntry); err == nil {
			t.Errorf("let in: %+v", h)
		}
		if _, err := proveAsConnector(said{bytes.NewReader(b), io.Discard}, "job", h, p.ownEntry); err == nil {
			t.Error("another process passed the handshake")
		}
	})
}

type said struct {
	io.Reader
	io.Writer
}

// Other processes continue, whatever a member sends.
func FuzzPeer(f *testing.F) {
	group := wire.EncodeBody(wire.Runs{{Namespace: "job", First: 0, Stride: 1, Count: 3}})
	for _, m := range []struct {
		k  wire.Kind
		id uint64
		b  any
	}{
		{wire.Incarnation, 0, wire.IncarnationBody{Nonce: 4}},
		{wire.Incarnation, 0, wire.IncarnationBody{}},
		{wire.Disconnect, 0, wire.DisconnectBody{Reason: "r"}},
		{wire.AliveQuery, 0, wire.Empty{}},
		{wire.AliveAnswer, 0, wire.Empty{}},
		{wire.Note, 0, wire.NoteBody{Rank: 1, From: 2, To: 3, Body: []byte("b")}},
		{wire.Event, 0, wire.EventBody{Kind: uint8(bootstrap.PeerFailed), Rank: 3, Reason: "r"}},
		{wire.Event, 0, wire.EventBody{Kind: uint8(bootstrap.PeerFailed), Rank: 0, Reason: "r"}},
		{wire.Event, 0, wire.EventBody{Kind: uint8(bootstrap.PeerLeft), Rank: 3, Nonce: 1}},
		{wire.CommEvent, 0, wire.CommEventBody{Event: wire.EventBody{Kind: uint8(bootstrap.CommBroken), Rank: 2}, Members: wire.Runs{{Namespace: "job", Stride: 1, Count: 3}}}},
		{wire.CommEvent, 0, wire.CommEventBody{Event: wire.EventBody{Kind: uint8(bootstrap.CommRevoked), Rank: 2, Comm: [16]byte{1}}, Members: wire.Runs{{Namespace: "job", Stride: 1, Count: 3}}}},
		{wire.Replicate, 0, wire.ReplicateBody{Version: 1, Last: true, Name: "k"}},
		{wire.GetReplica, 3, wire.GetBody{Rank: 2, Key: "k"}},
		{wire.Get, 1, wire.GetBody{Rank: 0, Key: "k"}},
		{wire.Construct, 2, wire.JoinBody{Tag: "t", Group: group, Payload: []byte("p")}},
		{wire.Fence, 3, wire.JoinBody{Tag: "t", Group: []byte{0x81, 0x83, 0x63, 'j', 'o', 'b', 0, 0x1a, 255, 255, 255, 255}}},
		{wire.Relay, 4, wire.RelayBody{Rank: 2, Kind: wire.Fence, Tag: "t", Group: group}},
		{wire.Fence, 5, wire.JoinBody{Tag: "t", Group: wire.EncodeBody(wire.Runs{{Namespace: "job", First: 1, Stride: 1, Count: 2}, {Namespace: "job", Count: 1}})}},
		{wire.Change, 6, wire.ChangeBody{Op: wire.Operate, Args: wire.EncodeBody(wire.OperateBody{Op: uint8(bootstrap.PsetShrink), Operands: []string{bootstrap.PsetWorld}, Sub: 1})}},
		{wire.Change, 7, wire.ChangeBody{Op: wire.Integrate, Args: wire.EncodeBody(wire.IntegrateBody{Delta: bootstrap.PsetSelf})}},
		{wire.Change, 8, wire.ChangeBody{Op: wire.Query, Args: wire.EncodeBody(wire.LookupBody{Name: bootstrap.PsetWorld, Wait: true})}},
		{wire.Change, 9, wire.ChangeBody{Op: wire.FindEntry, Args: wire.EncodeBody(wire.RankBody{Rank: 3})}},
		{wire.Change, 10, wire.ChangeBody{Op: wire.ListSets, Args: wire.EncodeBody(wire.Empty{})}},
		{wire.OwnEntry, 0, wire.EntryBody{Entry: []byte{protocolVersion}}},
		{wire.RepeatReply, 1, wire.Empty{}},
		{wire.Cancel, 2, wire.CancelBody{Expired: true}},
		{wire.Reply, 1, wire.ValueBody{Found: true}},
		{wire.Failure, 1, wire.FailureBody{Code: wire.CodeMissing, Missing: []uint32{1}}},
		{wire.Goodbye, 0, wire.Empty{}},
	} {
		f.Add(encodeFrame(m.k, m.id, m.b))
	}
	j := newTestJob(f, unix, 4)
	j.namespace = "job"
	good := j.open(0)
	f.Fuzz(func(t *testing.T, b []byte) {
		nc, r := impostor(t, unix, good, 2)
		nc.Write(b) // The other end may have closed.
		nc.Write(encodeFrame(wire.Goodbye, 0, wire.Empty{}))
		nc.(*net.UnixConn).CloseWrite() // b may have begun a longer frame.
		for {
			if _, err := r.Next(); err != nil {
				break
			}
		}
		nc.Close()
		err := good.Fence(t.Context(), []framework.Proc{j.proc(0)}, "t")
		if err != nil && !errors.Is(err, framework.ErrProcFailed) { // Another member may report rank 0 dead, but it cannot fail otherwise.
			t.Error(err)
		}
		good.mu.Lock()
		clear(good.failures)
		good.revoked = events.Revocations{}
		clear(good.seenEvents.recent)
		clear(good.seenEvents.older)
		clear(good.replicas)
		good.sets, good.hasLauncherSets = nil, false
		good.pendingCalls = calls.New[*call]() // Rank 0 may have been reported dead.
		for _, p := range good.peers {
			switch {
			case len(p.links) > 0:
				p.state = peerConnected
			case p.state != peerAbsent:
				p.state = peerUnmet
			}
		}
		good.mu.Unlock()
	})
}
