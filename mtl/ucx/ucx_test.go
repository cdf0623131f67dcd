package ucx_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/mtl/ucx"
)

// other is a different component for the kit.
type other struct{ mtl.Component }

// needUCX skips a test without UCX.
func needUCX(t testing.TB) {
	t.Helper()
	v := ucx.Component().Probe(t.Context(), ucx.Defaults())
	if v.Status == framework.StatusUsable {
		return
	}
	needs.Missing(t, "install libucx0: %s", v.Why())
}

// subject returns a subject of the kit for a class.
func subject(class, devices, mode, wait string) mtltest.Subject {
	c := ucx.Component()
	set := func(class, devices string) func(any) {
		return func(p any) { ucx.Set(p, []string{class}, strings.Fields(devices), mode, wait) }
	}
	others := map[string][2]string{"shm": {"tcp", "lo"}, "tcp": {"shm", ""}}[class]
	return mtltest.Subject{
		Component:   c,
		Params:      func(_ int, p any) { set(class, devices)(p) },
		Other:       other{c},
		OtherParams: set(others[0], others[1]),
	}
}

func TestKit(t *testing.T) {
	needUCX(t)
	for _, c := range []struct{ class, devices, mode, wait string }{
		{"shm", "", "peer", "poll"},
		{"tcp", "", "peer", "fd"}, // all devices: two processes may connect by several
		{"shm", "", "none", "fd"},
		{"tcp", "lo", "none", "poll"},
	} {
		t.Run(c.class+","+c.mode+","+c.wait, func(t *testing.T) {
			if c.class == "shm" || c.mode == "none" {
				needs.Time(t)
			}
			s := subject(c.class, c.devices, c.mode, c.wait)
			if c.wait == "fd" {
				s.First = kittest.AddedFirst
			}
			mtltest.Cases(s).Run(t)
		})
	}
}

// In mode none over tcp UCX never ends a receive whose sender fails in the middle, so the module does, for posted receives, unexpected messages and claims.
func TestReceive_SenderFailsInTheMiddle_Ends(t *testing.T) {
	needUCX(t)
	for _, claim := range []bool{false, true} {
		a, b := membersIn(t, "none", "libucp.so.0", "tcp")
		a.send(b, 1, bytes.Repeat([]byte{1}, 300_000))
		found := newTestOp()
		for !found.Found {
			found = newTestOp()
			if err := b.Probe(&found.Op, b.to(a), mtl.Envelope{CID: 1, Source: 0, Tag: 1}, claim); err != nil {
				t.Fatal(err)
			}
			pollUntilDone(t, []*member{a, b}, found)
		}
		got := make([]byte, 300_000)
		r := found
		if claim {
			r.isOver, r.Found = false, false
			if err := b.RecvClaimed(&r.Op, got); err != nil {
				t.Fatal(err)
			}
		} else {
			r = b.receive(a, 1, got)
		}
		for range 100 { // a is dead from here on
			b.Poll()
		}
		b.Forget(b.to(a), errors.New("it has died"))
		if !claim {
			b.Cancel(&r.Op)
		}
		pollUntilDone(t, []*member{b}, r)
		if !errors.Is(r.Err, framework.ErrTransport) {
			t.Errorf("claimed %v: the receive ends with %v", claim, r.Err)
		}
	}
}

// It covers each transport of shared memory alone, selected by UCX_TLS, and tcp with packets of 1 KiB. Without cma, and for messages in many packets, UCX does
// not report a failure before the launcher.
func TestKitOverOneTransport(t *testing.T) {
	needs.Time(t)
	needUCX(t)
	for _, environment := range []string{"UCX_TLS=self,posix", "UCX_TLS=self,sysv", "UCX_TLS=self,tcp UCX_NET_DEVICES=lo UCX_TCP_TX_SEG_SIZE=1k"} {
		t.Run(environment, func(t *testing.T) {
			for _, v := range strings.Fields(environment) {
				name, value, _ := strings.Cut(v, "=")
				t.Setenv(name, value)
			}
			s := subject("shm", "", "peer", "auto")
			s.Other, s.Params = nil, func(_ int, p any) { ucx.Set(p, nil, nil, "peer", "auto") }
			all := slices.DeleteFunc(mtltest.Cases(s), func(c kittest.Case) bool {
				return strings.HasPrefix(c.Name, "MessagesOfTheDead") || c.Name == "DifferentOffersAreBothNamed"
			})
			all.Run(t)
		})
	}
}

// UCX would wait for ever. All operations end, and further ones fail.
func TestQueueGuard_BlockedQueue_FailsModule(t *testing.T) {
	needUCX(t)
	a, b := membersIn(t, "peer", "libucp.so.0", "shm")
	pollUntilDone(t, []*member{a, b}, b.receive(a, 1, make([]byte, 8)), a.send(b, 1, make([]byte, 8)))
	waits := []*testOp{a.receive(b, 2, make([]byte, 8)), a.receive(b, 2, make([]byte, 100_000)), a.send(b, 3, make([]byte, 100_000))}
	ucx.Block(a.Module)
	pollUntilDone(t, []*member{a}, waits...)
	for i, o := range waits {
		if !errors.Is(o.Err, framework.ErrTransport) || !strings.Contains(o.Err.Error(), "blocks the message queue") {
			t.Errorf("operation %d: %v", i, o.Err)
		}
	}
	o := newTestOp()
	if err := a.Recv(&o.Op, a.to(b), mtl.Envelope{CID: 1, Source: 1, Tag: 2}, nil); !errors.Is(err, framework.ErrTransport) {
		t.Errorf("a receive afterwards: %v", err)
	}
	if _, err := a.Send(&o.Op, 1, mtl.Envelope{CID: 1, Tag: 2}, nil, mtl.Standard); !errors.Is(err, framework.ErrTransport) {
		t.Errorf("a send afterwards: %v", err)
	}
}

// The process sleeps during and after the failure of another one.
func TestQueueGuard_MovingQueue_KeepsModule(t *testing.T) {
	needUCX(t)
	a, b := membersIn(t, "peer", "libucp.so.0", "shm")
	pollUntilDone(t, []*member{a, b}, b.receive(a, 1, make([]byte, 8)), a.send(b, 1, make([]byte, 8)))
	for range 3 {
		b.send(a, 2, make([]byte, 8))
	}
	a.Forget(a.to(b), errors.New("it has died"))
	time.Sleep(3 * time.Second)
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		a.Poll()
	}
	o := newTestOp()
	if err := a.Recv(&o.Op, 1, mtl.Envelope{CID: 1, Source: 1, Tag: 2}, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	pollUntilDone(t, []*member{a}, o)
	if o.Err != nil {
		t.Error(o.Err)
	}
}
