package mpi

import (
	"errors"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

func TestDump_BothSides_ShowPendingOperations(t *testing.T) {
	var many []pml.Pending
	for i := range most + 5 {
		many = append(many, pml.Pending{Peer: 3, Tag: i, Bytes: 8, State: "offered"})
	}
	id := cid.Extended{Base: 0x2a}
	session := &Session{process: new(process)}
	halo := &Comm{size: 4, properties: properties{name: "halo"}, membership: membership{
		session: session, rank: 1, group: newGroup(session, framework.ProcsOf(Proc{Rank: 0}, Proc{Rank: 1}, Proc{Rank: 2}, Proc{Namespace: "job", Rank: 7})),
	}}
	var b strings.Builder
	writeInspection(&b, pml.Inspection{EarlyArrivals: 2, Comms: []pml.CommInspection{
		{ID: cid.Extended{Base: 0x2b}},
		{ID: cid.Extended{Base: 0x29}, Unexpected: []pml.Pending{{Peer: 2, Tag: 9, Bytes: 1, State: "arrived"}}},
		{
			ID: id, Local: cid.MakeLocal(4, 1),
			Posted: []pml.Pending{{Peer: AnySource, Tag: AnyTag, Bytes: 100, Plane: pml.Collective, State: "posted"}},
			Sends:  many,
		},
	}}, map[cid.EndpointID]*Comm{{Extended: id}: halo})
	for _, want := range []string{
		`communicator 2a "halo": rank 1 of 4, local id 4.1`, "one receive waits:", "from any rank, tag any, 100 bytes, collective, posted",
		"to 3 (rank 7 of the job), tag 19, 8 bytes, point to point, offered", "and 5 more", "2 messages for communicators that don't exist here yet",
		"communicator 29: closed", "from 2, tag 9, one byte, point to point, arrived", "one communicator in which nothing waits",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "tag 20") || strings.Count(b.String(), "nobody has received") != 1 {
		t.Errorf("too much in\n%s", b.String())
	}
}

// A call of a transport does not return.
func TestInspect_EngineStuck_ReturnsErrTimeout(t *testing.T) {
	t.Parallel() // It blocks in a separate engine.
	client, err := local.Component().Open(t.Context(), bootstrap.Env{Params: &local.Params{}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	s, err := OpenSession(t.Context(), WithBootstrap(client))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	g, err := s.Group(t.Context(), "mpi://SELF")
	if err != nil {
		t.Fatal(err)
	}
	c, err := CommFromGroup(t.Context(), g, "stuck")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s.process.engine.Lock()
	described := make(chan string)
	go func() { described <- s.process.hangReport().Queues }()
	_, err = c.Inspect()
	text := <-described
	s.process.engine.Unlock()
	if !errors.Is(err, ErrTimeout) {
		t.Errorf("Inspect says %v", err)
	}
	if want := "the queues of pml ob1 are unknown: deadline exceeded: progress engine"; !strings.Contains(text, want) {
		t.Errorf("no %q in\n%s", want, text)
	}
	if _, err := c.Inspect(); err != nil {
		t.Errorf("afterwards Inspect says %v", err)
	}
}
