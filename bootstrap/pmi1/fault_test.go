package pmi1

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/pmi1/pmi1test"
	"github.com/ferrympi/ferry/framework"
)

// patience is the deadline of answers, which is short if there is none.
func patience(f pmi1test.Fault) time.Duration {
	if f.Response == "" && !f.MustClose {
		return 200 * time.Millisecond
	}
	return time.Minute
}

// faults are answers of a faulty server, with the resulting error.
func faults(cmd, field string) map[string]pmi1test.Fault {
	f := map[string]pmi1test.Fault{
		"no complete answer": {Cmd: cmd},
		"closed":             {Cmd: cmd, MustClose: true},
		"Segmentation":       {Cmd: cmd, Response: "Segmentation fault\n"},
		"is truncated":       {Cmd: cmd, Response: "cmd=half", MustClose: true},
		"cmd=other_result":   {Cmd: cmd, Response: "cmd=other_result rc=0\n"},
		"byte 0x0":           {Cmd: cmd, Response: "cmd=\x00\n"},
		"over 4096":          {Cmd: cmd, Response: "cmd=" + strings.Repeat("x", 9000)},
	}
	if field != "" {
		f["is not a number"] = pmi1test.Fault{Cmd: cmd, Response: field}
	}
	return f
}

func TestOpen_ServerFails_IsAnError(t *testing.T) {
	for cmd, field := range map[string]string{
		"initack":        "cmd=initack rank=many\ncmd=set size=4\ncmd=set rank=0\ncmd=set debug=0\n",
		"init":           "cmd=response_to_init pmi_version=1 pmi_subversion=9 rc=0\n",
		"get_maxes":      "cmd=maxes kvsname_max=256 keylen_max=64\n",
		"get_my_kvsname": "",
		"get":            "",
	} {
		for want, fault := range faults(cmd, field) {
			if cmd == "get_maxes" && want == "is not a number" {
				want = "no vallen_max"
			}
			s := server(t, pmi1test.Options{})
			s.InjectFault(fault)
			_, err := openLauncher(t.Context(), env(s, 0, patience(fault)))
			if !errors.Is(err, framework.ErrTransport) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s, %q: got %v", cmd, want, err)
			}
			if errors.Is(err, framework.ErrTimeout) != (want == "no complete answer") && want != "over 4096" {
				t.Errorf("%s, %q: a timeout? %v", cmd, want, err)
			}
		}
	}
}

func TestCalls_ServerFails_AreErrors(t *testing.T) {
	for cmd, call := range map[string]func(ctx context.Context, l *launcher) error{
		"publish_name": func(ctx context.Context, l *launcher) error { return l.Publish(ctx, []byte("x")) },
		"lookup_name":  func(ctx context.Context, l *launcher) error { _, _, err := l.Find(ctx, proc(1)); return err },
		"finalize":     func(_ context.Context, l *launcher) error { return l.Close() },
	} {
		for want, fault := range faults(cmd, "") {
			s := server(t, pmi1test.Options{})
			l, err := openLauncher(t.Context(), env(s, 0, patience(fault)))
			if err != nil {
				t.Fatal(err)
			}
			s.InjectFault(fault)
			if err := call(t.Context(), l); !errors.Is(err, framework.ErrTransport) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s, %q: got %v", cmd, want, err)
			}
			if cmd == "finalize" {
				continue
			}
			// The first cause remains the result of all calls.
			if _, _, err := l.Find(t.Context(), proc(2)); !errors.Is(err, framework.ErrTransport) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s, %q, afterwards: %v", cmd, want, err)
			}
			if err := l.Close(); !errors.Is(err, framework.ErrTransport) {
				t.Errorf("%s, %q, Close: %v", cmd, want, err)
			}
		}
	}
}

func TestOpen_NoServerAtPort_IsErrTransport(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := closed.Addr().String()
	closed.Close()
	for range 2 {
		_, err := openLauncher(t.Context(), bootstrap.Env{Params: &Params{Port: port}})
		if !errors.Is(err, framework.ErrTransport) || !strings.Contains(err.Error(), port) {
			t.Errorf("got %v", err)
		}
	}
	if isKnown(serverAddress{fd: -1, port: port}) {
		t.Error("a connection without a request cannot be repeated")
	}
}

// The event arrives without a request. A goodbye causes none.
func TestServerLost_IsAnEvent(t *testing.T) {
	s := server(t, pmi1test.Options{})
	events := make(chan bootstrap.Event, 10)
	a, gone, b := rank(t, s, 0), rank(t, s, 0), rank(t, s, 1)
	a.Watch(func(e bootstrap.Event) { events <- e })
	gone.Watch(func(bootstrap.Event) { t.Error("a launcher that is closed hears of it") })
	b.Watch(func(bootstrap.Event) { t.Error("an event for the end after a goodbye") })
	if err := errors.Join(gone.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if e := <-events; e.Kind != bootstrap.ServerLost || !strings.Contains(e.Reason, "EOF") {
		t.Errorf("event %+v", e)
	}
	a.Watch(nil)
	a.Watch(func(e bootstrap.Event) { events <- e })
	if e := <-events; e.Kind != bootstrap.ServerLost {
		t.Errorf("event for a latecomer: %+v", e)
	}
	if _, _, err := a.Find(t.Context(), proc(2)); !errors.Is(err, framework.ErrTransport) {
		t.Errorf("find: %v", err)
	}
	if err := a.Close(); !errors.Is(err, framework.ErrTransport) {
		t.Errorf("close: %v", err)
	}
	if len(events) > 0 {
		t.Errorf("more events: %+v", <-events)
	}
}

func TestCall_TwoAnswers_EndConnection(t *testing.T) {
	s := server(t, pmi1test.Options{})
	a, b := rank(t, s, 0), rank(t, s, 1)
	if err := a.Publish(t.Context(), []byte("a")); err != nil {
		t.Fatal(err)
	}
	s.InjectFault(pmi1test.Fault{Cmd: "lookup_name", IsRepeated: true})
	if e, ok, err := b.Find(t.Context(), proc(0)); !ok || err != nil || string(e) != "a" {
		t.Errorf("%q, %t, %v", e, ok, err)
	}
	if e, ok, err := b.Find(t.Context(), proc(2)); ok || !errors.Is(err, framework.ErrTransport) {
		t.Errorf("the second is taken for another rank's: %q, %t, %v", e, ok, err)
	}
}

// The second answer arrives during the next request.
func TestCall_LateSecondAnswer_EndsConnection(t *testing.T) {
	s := server(t, pmi1test.Options{})
	a, b := rank(t, s, 0), rank(t, s, 1)
	if err := a.Publish(t.Context(), []byte("a")); err != nil {
		t.Fatal(err)
	}
	s.InjectFault(pmi1test.Fault{Cmd: "lookup_name", Response: "cmd=lookup_result port=" + s.Names()["ferry/"+kvsname+"/0"] + " rc=0\n"})
	if e, ok, err := b.Find(t.Context(), proc(2)); ok || !errors.Is(err, framework.ErrTransport) || !strings.Contains(err.Error(), "ferry/"+kvsname+"/2") {
		t.Errorf("%q, %t, %v", e, ok, err)
	}
}

func TestFind_TruncatedEntry_IsAnError(t *testing.T) {
	s := server(t, pmi1test.Options{})
	a, b := rank(t, s, 0), rank(t, s, 1)
	entry := bytes.Repeat([]byte("secret"), 200)
	if err := a.Publish(t.Context(), entry); err != nil {
		t.Fatal(err)
	}
	s.InjectFault(pmi1test.Fault{Cmd: "lookup_name", TruncatedField: "port"})
	_, ok, err := b.Find(t.Context(), proc(0))
	if ok || !errors.Is(err, framework.ErrTransport) || !strings.Contains(err.Error(), "truncated") || strings.Contains(err.Error(), "736563726574") {
		t.Errorf("%t, %v", ok, err)
	}
	if e, ok, err := b.Find(t.Context(), proc(0)); !ok || err != nil || !bytes.Equal(e, entry) {
		t.Errorf("afterwards: %d bytes, %t, %v", len(e), ok, err)
	}
}

func TestFind_ForeignEntry_IsAnError(t *testing.T) {
	s := server(t, pmi1test.Options{})
	l := rank(t, s, 0)
	name := "ferry/" + kvsname + "/1"
	two := encodePorts(name, []byte("xy"), 1)
	long := encodePorts(name, make([]byte, 3000), 1500)
	for _, c := range []struct {
		port string
		want string
		more string // Value of part 1.
	}{
		{port: "tag#0$port#1234$", want: "truncated, or was not"},
		{port: "0.00000000.", want: "truncated, or was not"},
		{port: "1..", want: "truncated, or was not"},
		{port: "1.00000000.00", want: "truncated, or was not"},
		{port: encodePorts(name+"x", []byte("x"), 9)[0], want: "truncated, or was not"},
		{port: two[0], want: "a part is missing"},
		{port: two[0], want: "look up " + name + "/1", more: "?"},
		{port: two[0], want: "look up " + name + "/1", more: encodePorts(name, []byte("ab"), 1)[1]}, // of another value
		{port: two[0], want: "truncated, or was not", more: two[1][:len(two[1])-2]},
		{port: long[0], want: "truncated, or was not", more: long[1]},
	} {
		s.Publish(name, c.port)
		if c.more != "" {
			s.Publish(name+"/1", c.more)
		}
		if _, ok, err := l.Find(t.Context(), proc(1)); ok || !errors.Is(err, framework.ErrTransport) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%.40s: %t, %v, want %q", c.port, ok, err, c.want)
		}
	}
}

func TestPublish_IsRefused_ErrorHasName(t *testing.T) {
	s := server(t, pmi1test.Options{})
	l := rank(t, s, 0)
	left := func(r string) {
		t.Helper()
		for name := range s.Names() {
			if strings.HasPrefix(name, "ferry/"+kvsname+"/"+r+"/") {
				t.Errorf("%s is left behind", name)
			}
		}
	}
	name := "ferry/" + kvsname + "/0"
	s.InjectFault(pmi1test.Fault{Cmd: "publish_name", Response: "cmd=publish_result info=ok rc=7 msg=no_room\n"})
	if err := l.Publish(t.Context(), make([]byte, 1500)); !errors.Is(err, framework.ErrTransport) && !errors.Is(err, bootstrap.ErrPublished) || !strings.Contains(err.Error(), name) {
		t.Errorf("refused: %v", err)
	}
	other := rank(t, s, 1)
	s.Publish("ferry/"+kvsname+"/1", "another's")
	for range 2 {
		err := other.Publish(t.Context(), make([]byte, 1500))
		if !errors.Is(err, bootstrap.ErrPublished) || !strings.Contains(err.Error(), "ferry/"+kvsname+"/1") || !strings.Contains(err.Error(), "another's") {
			t.Errorf("taken: %v", err)
		}
	}
	left("1")
	// Another process publishes the name of the head, or of a part, at the last moment.
	for r, taken := range map[int]string{2: "", 3: "/2"} {
		name := fmt.Sprintf("ferry/%s/%d%s", kvsname, r, taken)
		l := rank(t, s, r)
		s.InjectFault(pmi1test.Fault{Cmd: "lookup_name", Response: "cmd=lookup_result rc=1\n"})
		s.Publish(name, "another's")
		if err := l.Publish(t.Context(), make([]byte, 1500)); !errors.Is(err, bootstrap.ErrPublished) || !strings.Contains(err.Error(), name) {
			t.Errorf("taken meanwhile: %v", err)
		}
	}
	left("0")
	left("2")
	if _, there := s.Names()["ferry/"+kvsname+"/3"]; there || len(s.Names()) != 3 {
		t.Errorf("there is %d", len(s.Names()))
	}
}

func TestIdentity_MappingAndVariablesDiffer_LocalsAreUnknown(t *testing.T) {
	for _, c := range []struct {
		mapping, localRank, localSize string
		want                          []uint32
	}{
		{"(vector,(0,1,1))", "", "", []uint32{0, 1, 2, 3}},
		{"(vector,(0,2,2))", "0", "2", []uint32{2, 3}},
		{"(vector,(0,2,2))", "1", "2", nil},
		{"(vector,(0,2,2))", "0", "4", nil},
		{"(vector,(0,2,2", "0", "2", nil},
		{"(matrix,(0,2,2))", "0", "2", nil},
		{"segments=2", "0", "2", nil},
		{"", "0", "2", nil},
	} {
		s := server(t, pmi1test.Options{Mapping: c.mapping})
		at := serverAddress{fd: -1, port: s.Port(), pmiID: 2, localRank: -1, localSize: -1}
		for text, into := range map[string]*int{c.localRank: &at.localRank, c.localSize: &at.localSize} {
			if text != "" {
				*into = int(text[0] - '0')
			}
		}
		var log bytes.Buffer
		p, err := acquire(t.Context(), at, bootstrap.Env{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Errorf("%s: %v", c.mapping, err)
			continue
		}
		if !slices.Equal(p.id.LocalRanks, c.want) || p.id.LocalSize != len(c.want) || p.id.LocalSize > 0 && p.id.LocalRanks[p.id.LocalRank] != 2 {
			t.Errorf("%+v: got %+v", c, p.id)
		}
		if (len(p.id.Nodes) > 0) != (c.want != nil) {
			t.Errorf("%+v: the map is %v", c, p.id.Nodes)
		}
		if told := strings.Contains(log.String(), "are unknown"); told != (c.want == nil && c.mapping != "") {
			t.Errorf("%+v: log %s", c, log.String())
		}
		if err := p.release(); err != nil {
			t.Error(err)
		}
	}
}
