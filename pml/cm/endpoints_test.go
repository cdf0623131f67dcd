package cm_test

import (
	"context"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/cm"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// TestAddComm_MTLMatchesByProcess_IsUnsupported, and whole processes are supported there.
func TestAddComm_MTLMatchesByProcess_IsUnsupported(t *testing.T) {
	w := pmltest.OpenWorld(t, stack(mtltest.Options{ByProcess: true}), 2)
	err := w.Endpoints(1, 2).Join(0)
	wantErr(t, "several ranks in a process", err, framework.ErrUnsupported)
	if err != nil && !strings.Contains(err.Error(), "mtl.ofi.layout=packed") {
		t.Errorf("no remedy: %v", err)
	}
	c := w.Comms(t, cid.PolicyLazy)
	start(t)(isend(c[0], 1, 1, pml.Standard))
	receive(t, c[1], 0, 1, "message")
}

// TestControl_ForgedEndpoint_IsDropped: a reply that gives a rank the endpoint of another one
// teaches no id, from which messages would get lost.
func TestControl_ForgedEndpoint_IsDropped(t *testing.T) {
	net := mtltest.NewMemory(mtltest.Options{})
	w := pmltest.OpenWorld(t, over(net), 2)
	e := w.JoinEndpoints(t, 2, 2)
	to := e.Rank(1, 1)
	for _, ends := range [][2]uint16{{0, 0}, {9, 1}, {0, 9}} { // receiver and sender
		b := cm.Reply(w.Group()[0].Nonce, w.Group()[1].Nonce, e.ID, to, cid.MakeLocal(77, 1))
		binary.LittleEndian.PutUint16(b[44:], ends[0])
		binary.LittleEndian.PutUint16(b[46:], ends[1])
		net.Inject(0, b)
	}
	start(t)(e.Comms[0].Isend(text("it arrives"), to, 5, pml.PointToPoint, pml.Standard))
	until(t, "the message", func() bool {
		_, found, err := e.Comms[to].Iprobe(0, 5, pml.PointToPoint)
		return found || err != nil
	})
	receive(t, e.Comms[to], 0, 5, "it arrives")
}

// TestControl_TwoEndpointsAskEarly_BothAreKept checks that requests of two ranks of a process for
// one id are early arrivals of their own.
func TestControl_TwoEndpointsAskEarly_BothAreKept(t *testing.T) {
	w := pmltest.OpenWorld(t, stack(mtltest.Options{}), 2)
	e := w.Endpoints(2, 1)
	to := e.Rank(1, 0)
	for endpoint := range 2 {
		from := e.Rank(0, endpoint)
		if err := e.Join(from); err != nil {
			t.Fatal(err)
		}
		start(t)(e.Comms[from].Isend(text("early"), to, 5, pml.PointToPoint, pml.Standard))
	}
	until(t, "two requests", func() bool { return pmltest.Inspect(w.Procs[1].Module).EarlyArrivals == 2 })
	if err := e.Join(to); err != nil {
		t.Fatal(err)
	}
	for endpoint := range 2 {
		receive(t, e.Comms[to], e.Rank(0, endpoint), 5, "early")
	}
}

// TestGoodbye_ProcessOfSeveralRanks_MessagesOfAllAreReceived: the goodbye counts the messages of
// all ranks, and those that no receive waits for are searched for rank by rank.
func TestGoodbye_ProcessOfSeveralRanks_MessagesOfAllAreReceived(t *testing.T) {
	defer cm.SetMostVain(1 << 20)() // no receive ends because too little is found
	w := pmltest.OpenWorld(t, stack(mtltest.Options{}), 2)
	e := w.JoinEndpoints(t, 2, 3)
	sent := func(f func(from, to int)) {
		for endpoint := range 3 {
			for other := range 2 {
				f(e.Rank(1, endpoint), e.Rank(0, other))
			}
		}
	}
	sent(func(from, to int) {
		start(t)(e.Comms[from].Isend(text("kept"), to, 5, pml.PointToPoint, pml.Standard))
	})
	wild := make([]started, 2)
	for endpoint := range wild {
		wild[endpoint] = start(t)(recvInto(e.Comms[e.Rank(0, endpoint)], pml.AnySource, 9))
	}
	last := start(t)(recvInto(e.Comms[e.Rank(0, 1)], e.Rank(1, 2), 9))
	for endpoint := range 3 {
		e.Comms[e.Rank(1, endpoint)].Close()
	}
	leave(t, w, 1)
	soon, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := last.r.Wait(soon, last.gen)
	wantErr(t, "receive from a rank of a process that has left", err, framework.ErrPeerClosed)
	sent(func(from, to int) { receive(t, e.Comms[to], from, 5, "kept") })
	for _, r := range wild { // the other rank of this process may send, by another PML
		if err := r.r.Cancel(r.gen); err != nil {
			t.Error(err)
		}
		if st, err := r.wait(t); err != nil || !st.Canceled {
			t.Errorf("receive from any: %+v %v", st, err)
		}
	}
}

func TestHandles_ThousandsInAProcess_ShareTables(t *testing.T) { pmltest.Handles(t, stack(eager)) }
