package local

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/bootstrap/local/server"
)

// connectSilent connects as a rank that sends no message after its hello.
func connectSilent(t *testing.T, j *job, rank int) net.Conn {
	t.Helper()
	p, err := paramsFrom(j.srv.Environ(rank))
	if err != nil {
		t.Fatal(err)
	}
	silent := rawDial(t, p)
	if _, err := silent.Write(hello(t, func(*wire.HelloBody) {}, p)); err != nil {
		t.Fatal(err)
	}
	return silent
}

// A process that answers no query is reported dead, and an idle one that answers is not.
func TestProcessTimeout_ProcessAnswersNoQuery_IsReportedDead(t *testing.T) {
	const timeout = 200 * time.Millisecond
	lost := make(chan server.Lost, 8)
	j := testJob(t, server.Options{Size: 3, ProcessTimeout: timeout, OnLost: func(l server.Lost) { lost <- l }})
	events := make(chan bootstrap.Event, 8)
	j.open(t, 0).(bootstrap.EventSource).OnEvent(func(e bootstrap.Event) { events <- e })
	j.open(t, 1)
	connectSilent(t, j, 2)
	e := <-events
	if e.Kind != bootstrap.PeerFailed || e.Proc.Rank != 2 || !strings.Contains(e.Reason, "no query for 200ms") {
		t.Errorf("event %+v", e)
	}
	if l := <-lost; l != (server.Lost{Rank: 2, Unanswered: timeout}) {
		t.Errorf("the launcher received %+v", l)
	}
	if ranks := j.srv.RequestDump(""); !slices.Contains(ranks, 1) { // As long as the silent one has taken.
		t.Errorf("connected are %v", ranks)
	}
	select {
	case e := <-events:
		if e.Kind == bootstrap.PeerFailed {
			t.Errorf("event %+v", e)
		}
	default:
	}
}

// Without the timeout no process is reported, and none receives a query.
func TestProcessTimeout_Zero_SendsNoQueries(t *testing.T) {
	j := testJob(t, server.Options{Size: 1})
	silent := connectSilent(t, j, 0)
	r := wire.NewReader(silent, wire.MaxFrame)
	if m, err := r.Next(); err != nil || m.Kind != wire.Welcome {
		t.Fatalf("%+v, %v", m, err)
	}
	j.srv.RequestDump("") // A frame behind all that came before.
	if m, err := r.Next(); err != nil || m.Kind != wire.Event {
		t.Errorf("%+v, %v", m, err)
	}
}
