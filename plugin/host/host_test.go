package host_test

import (
	"errors"
	"flag"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/btltest"
	"github.com/ferrympi/ferry/btl/self"
	"github.com/ferrympi/ferry/config"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/plugin"
	"github.com/ferrympi/ferry/plugin/host"
	"github.com/ferrympi/ferry/progress"
)

// The test binary is also the plugin, depending on its first argument.
func TestMain(m *testing.M) {
	if plugin.Started() || os.Getenv(byHandVariable) != "" {
		os.Exit(be(os.Args[1]))
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(status int) { os.RemoveAll(scratch); os.Exit(status) }))
}

// entry is one with the default protocol.
func entry(what string) host.Entry {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return host.Entry{Kind: framework.BTL, Name: "acme", Command: []string{self, what}, Env: []string{"GORACE=atexit_sleep_ms=0"}}
}

// overBoth runs f with each control protocol.
func overBoth(t *testing.T, f func(t *testing.T, entry func(what string) host.Entry)) {
	t.Helper()
	for _, protocol := range []string{config.ProtocolGoPlugin, config.ProtocolFerry} {
		t.Run(protocol, func(t *testing.T) {
			f(t, func(what string) host.Entry {
				e := entry(what)
				e.Protocol = protocol
				return e
			})
		})
	}
}

func component(t *testing.T, e host.Entry) btl.Component {
	t.Helper()
	r := framework.NewRegistry()
	if err := host.Register(r, e); err != nil {
		t.Fatal(err)
	}
	c, _ := r.Lookup(framework.BTL, e.Name)
	return c.(btl.Component)
}

func TestLoopback_BothProtocols_KeepTheContract(t *testing.T) {
	overBoth(t, func(t *testing.T, entry func(string) host.Entry) {
		btltest.Cases(btltest.Subject{Component: component(t, entry("loopback"))}).Run(t)
	})
}

func TestNull_BothProtocols_KeepTheContract(t *testing.T) {
	overBoth(t, func(t *testing.T, entry func(string) host.Entry) {
		btltest.Cases(btltest.Subject{Component: component(t, entry("null"))}).Run(t)
	})
}

// upcalls is a protocol that records the ends of paths.
type upcalls struct {
	mu   sync.Mutex
	lost []error
	got  int
}

func (u *upcalls) Accept(framework.Incarnation) btl.Inbound { return u }
func (u *upcalls) Limits(framework.Incarnation, int, int)   {}
func (u *upcalls) PathDown(_ framework.Incarnation, e error) {
	u.mu.Lock()
	u.lost = append(u.lost, e)
	u.mu.Unlock()
}
func (u *upcalls) PeerChanged(ev framework.PeerEvent)        { u.PathDown(ev.Peer, ev.Err) }
func (u *upcalls) LinkChanged(framework.Incarnation, string) {}
func (u *upcalls) Card(framework.Incarnation) (framework.Peer, bool) {
	return framework.Peer{}, false
}
func (u *upcalls) Place([]byte, int) []byte { return nil }
func (u *upcalls) Placed([]byte, int) error { return nil }
func (u *upcalls) Frame([]byte) error       { u.got++; return nil }

// open opens a plugin with its log on w.
func open(t *testing.T, e host.Entry, w io.Writer, change func(params any)) (btl.Module, btl.Env, *upcalls, error) {
	t.Helper()
	job := kittest.NewJob(1, 1)
	c := component(t, e)
	env := btl.Env{Env: job.Begin(0, progress.Options{}), Upcall: &upcalls{}}
	env.Logger = slog.New(slog.NewTextHandler(w, nil))
	env.Params = kittest.Params(c, change)
	m, err := c.Open(t.Context(), env)
	if err != nil {
		env.Engine.Close()
		return nil, env, nil, err
	}
	t.Cleanup(func() {
		env.Engine.Remove(m)
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		env.Engine.Close()
	})
	return m, env, env.Upcall.(*upcalls), nil
}

// set changes a parameter by its text.
func set(t *testing.T, values map[string]string) func(any) {
	return func(params any) {
		r := framework.NewRegistry()
		r.RegisterParams(framework.ParamsOf("btl.acme", params)...)
		v, err := r.Defaults()
		if err == nil {
			v, err = v.With("test", values)
		}
		if err == nil {
			err = v.Decode("btl.acme", params)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// child returns the plugin of this process; there is one.
func child(t *testing.T) int {
	t.Helper()
	all := children(t)
	if len(all) == 0 {
		t.Fatal("there is no plugin")
	}
	return all[0]
}

// traffic opens a path of the process to itself and sends on it until the path is lost; it
// returns how long that took since harm was done.
func traffic(t *testing.T, m btl.Module, env btl.Env, u *upcalls, harm func()) (time.Duration, error) {
	t.Helper()
	env.Engine.Add(m)
	me := framework.Peer{Incarnation: env.Self, Proc: env.Identity.Proc, Blob: m.Blob()}
	env.Engine.Lock()
	ep, err := m.Connect(me)
	env.Engine.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	var began time.Time
	for limit := time.Now().Add(20 * time.Second); time.Now().Before(limit); {
		env.Engine.Lock()
		if b := ep.Reserve(100, btl.RingStart); b != nil {
			ep.Commit(100)
		}
		env.Engine.Progress()
		sent := u.got
		env.Engine.Unlock()
		if began.IsZero() && sent > 50 {
			began = time.Now()
			harm()
		}
		u.mu.Lock()
		lost := u.lost
		u.mu.Unlock()
		if len(lost) > 0 {
			if began.IsZero() {
				began = time.Now()
			}
			env.Engine.Lock()
			if err := m.Reach(me); err == nil && !errors.Is(lost[0], btl.ErrNeverOpened) {
				t.Error("the module reaches peers without its plugin")
			}
			env.Engine.Unlock()
			return time.Since(began), lost[0]
		}
	}
	t.Fatal("the path was not lost")
	return 0, nil
}

// Any failure of a plugin ends its paths soon, with the reason. The rank continues.
func TestPlugin_Fails_PathsEndInTime(t *testing.T) {
	overBoth(t, func(t *testing.T, entry func(string) host.Entry) {
		for _, c := range []struct {
			what, says string
			signal     syscall.Signal
			limit      time.Duration
		}{
			{"loopback", "signal: killed", syscall.SIGKILL, time.Second},
			{"loopback", "signal: segmentation fault", syscall.SIGSEGV, time.Second},
			{"loopback", "health_timeout", syscall.SIGSTOP, 5 * time.Second},
			{"garbage", "invalid message", 0, 5 * time.Second},
			{"hangs in connect", "health_timeout", 0, 5 * time.Second},
			{"hangs in poll", "health_timeout", 0, 5 * time.Second},
			{"closes its descriptors", "", 0, 5 * time.Second},
			{"never opens", "open_timeout", 0, 5 * time.Second},
		} {
			params := map[string]string{"btl.acme.health_timeout": "500ms", "btl.acme.restarts": "0"}
			if c.what == "never opens" {
				params["btl.acme.open_timeout"] = "800ms"
			}
			m, env, u, err := open(t, entry(c.what), io.Discard, set(t, params))
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s, %v", c.what, c.signal)
			took, err := traffic(t, m, env, u, func() {
				if c.signal != 0 {
					_ = syscall.Kill(child(t), c.signal)
				}
			})
			var te *framework.TransportError
			if !errors.As(err, &te) || !strings.Contains(err.Error(), c.says) && c.signal != syscall.SIGSEGV {
				t.Errorf("%s, %v: %v", c.what, c.signal, err)
			}
			if took > c.limit {
				t.Errorf("%s, %v: lost after %v", c.what, c.signal, took)
			}
		}
	})
}

// With both rings full, neither side may block in Poll, because it must read.
func TestRings_BothFull_PollDoesNotBlock(t *testing.T) {
	overBoth(t, func(t *testing.T, entry func(string) host.Entry) {
		m, env, u, err := open(t, entry("null"), io.Discard, set(t, map[string]string{"btl.acme.ring_cells": "64"}))
		if err != nil {
			t.Fatal(err)
		}
		const frames = 2000
		done := make(chan bool)
		go func() {
			env.Engine.Lock()
			defer env.Engine.Unlock()
			ep, err := m.Connect(framework.Peer{Incarnation: env.Self, Proc: env.Identity.Proc, Blob: m.Blob()})
			for sent := 0; err == nil && u.got < frames; m.Poll() {
				for ; sent < frames && ep.Reserve(m.Caps().FrameLimit, btl.RingStart) != nil; sent++ {
					ep.Commit(m.Caps().FrameLimit)
				}
			}
			done <- err == nil
		}()
		select {
		case ok := <-done:
			if !ok {
				t.Error("no path")
			}
		case <-time.After(30 * time.Second):
			panic("the rank hangs in Poll") // what waits for it would hang too
		}
	})
}

func TestCommit_AfterEnd_IsDropped(t *testing.T) {
	overBoth(t, func(t *testing.T, entry func(string) host.Entry) {
		m, env, u, err := open(t, entry("loopback"), io.Discard, set(t, map[string]string{"btl.acme.restarts": "0"}))
		if err != nil {
			t.Fatal(err)
		}
		env.Engine.Lock()
		defer env.Engine.Unlock()
		ep, err := m.Connect(framework.Peer{Incarnation: env.Self, Proc: env.Identity.Proc, Blob: m.Blob()})
		if err != nil {
			t.Fatal(err)
		}
		late := time.Now().Add(20 * time.Second)
		for ep.Reserve(100, btl.RingStart) == nil && time.Now().Before(late) {
			m.Poll()
		}
		_ = syscall.Kill(child(t), syscall.SIGKILL)
		for mapped := true; mapped && time.Now().Before(late); time.Sleep(time.Millisecond) {
			m.Poll()
			maps, _ := os.ReadFile("/proc/self/maps")
			mapped = strings.Contains(string(maps), "memfd:ferry-plugin")
		}
		ep.Commit(100)
		if len(u.lost) != 1 {
			t.Errorf("lost: %v", u.lost)
		}
	})
}

func TestOutput_Endless_IsBounded(t *testing.T) {
	overBoth(t, func(t *testing.T, entry func(string) host.Entry) {
		var log counter
		m, env, u, err := open(t, entry("noisy"), &log, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := traffic(t, m, env, u, func() { _ = syscall.Kill(child(t), syscall.SIGKILL) }); err == nil {
			t.Error("no loss")
		}
		if n := log.bytes(); n == 0 || n > 1<<20 {
			t.Errorf("%d bytes of log", n)
		}
	})
}

func TestClose_PluginDoesNotEnd_IsKilled(t *testing.T) {
	overBoth(t, func(t *testing.T, entry func(string) host.Entry) {
		needs.Time(t)
		for _, what := range []string{"forks", "hangs in close"} {
			var log text
			c := component(t, entry(what))
			job := kittest.NewJob(1, 1)
			env := btl.Env{Env: job.Begin(0, progress.Options{}), Upcall: &upcalls{}, Params: kittest.Params(c, nil)}
			env.Logger = slog.New(slog.NewTextHandler(&log, nil))
			m, err := c.Open(t.Context(), env)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if err := m.Close(); err != nil {
				t.Error(err)
			}
			env.Engine.Close()
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("%s: closed after %v", what, took)
			}
			if says := log.String(); (what == "hangs in close") != strings.Contains(says, "has not stopped on request") {
				t.Errorf("%s: %s", what, says)
			}
		}
	})
}

// waitForLog waits for a text in the log.
func waitForLog(t *testing.T, log *text, want string) {
	t.Helper()
	for limit := time.Now().Add(20 * time.Second); !strings.Contains(log.String(), want); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("no %q in the log: %s", want, log)
		}
	}
}

// text is a log that several goroutines write.
type text struct {
	mu sync.Mutex
	b  strings.Builder
}

func (x *text) Write(b []byte) (int, error) { x.mu.Lock(); defer x.mu.Unlock(); return x.b.Write(b) }
func (x *text) String() string              { x.mu.Lock(); defer x.mu.Unlock(); return x.b.String() }

type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.n += len(b)
	c.mu.Unlock()
	return len(b), nil
}
func (c *counter) bytes() int { c.mu.Lock(); defer c.mu.Unlock(); return c.n }

func TestRegister_InvalidEntry_ReturnsErrConfig(t *testing.T) {
	for says, e := range map[string]host.Entry{
		"compile it in":                    {Kind: framework.MTL, Name: "x", Command: []string{"/x"}},
		"only a btl":                       {Kind: framework.Coll, Name: "x", Command: []string{"/x"}},
		"lower case":                       {Kind: framework.BTL, Name: "X", Command: []string{"/x"}},
		"is compiled in":                   {Kind: framework.BTL, Name: "self", Command: []string{"/x"}},
		"want an absolute path":            {Kind: framework.BTL, Name: "x", Command: []string{"x"}},
		"want 64 hexadecimal digits":       {Kind: framework.BTL, Name: "x", Command: []string{"/x"}, SHA256: "5f0c"},
		"the other one in components.yaml": {Kind: framework.BTL, Name: "listed", Command: []string{"/x"}},
		"two plugins of that name":         {Kind: framework.BTL, Name: "twice", Command: []string{"/x"}},
	} {
		r := framework.NewRegistry()
		r.Register(self.Component())
		r.Register(host.Component(host.Entry{Kind: framework.BTL, Name: "listed", Command: []string{"/x"}, File: "components.yaml"}))
		entries := []host.Entry{e}
		if e.Name == "twice" {
			entries = append(entries, e)
		}
		if err := host.Register(r, entries...); !errors.Is(err, framework.ErrConfig) || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v", e, err)
		}
	}
}

var full = flag.Bool("full", false, "kill a plugin 100 times instead of 5")

// A plugin is killed in the middle of traffic. Each time an error comes within 1 s, and a module opened afterwards works.
func TestKill_DuringTraffic_ReturnsErrorWithinOneSecond(t *testing.T) {
	overBoth(t, func(t *testing.T, entry func(string) host.Entry) {
		rounds := 5
		if *full {
			rounds = 100
		}
		longest := time.Duration(0)
		for range rounds {
			t.Run("", func(t *testing.T) {
				m, env, u, err := open(t, entry("loopback"), io.Discard, nil)
				if err != nil {
					t.Fatal(err)
				}
				took, err := traffic(t, m, env, u, func() { _ = syscall.Kill(child(t), syscall.SIGKILL) })
				if took > time.Second || !strings.Contains(err.Error(), "signal: killed") {
					t.Errorf("after %v: %v", took, err)
				}
				longest = max(longest, took)
			})
		}
		t.Logf("%d times, at the latest after %v", rounds, longest)
	})
}
