package ofi_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/internal/libfabric/testprov"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/mtl/ofi"
	"github.com/ferrympi/ferry/progress"
)

// A profile is a simulated provider of the tests' own libfabric, with the properties of network hardware.

// useProfiles selects simulated providers and faults, and returns their library.
func useProfiles(t testing.TB, providers string, faults ...string) string {
	t.Helper()
	if err := libfabric.Built(); err != nil {
		t.Skip(err)
	}
	testprov.Set(t, providers, faults...)
	return testprov.Library(t)
}

// profile returns a subject of the kit for a simulated provider.
func profile(t testing.TB, provider, layout, wait string, faults ...string) mtltest.Subject {
	t.Helper()
	lib := useProfiles(t, provider, faults...)
	s := subject(provider, layout, wait)
	set := s.Params
	s.Params = func(rank int, p any) {
		set(rank, p)
		ofi.SetLibrary(p, lib, 10*time.Second)
	}
	s.OtherParams = func(p any) {
		ofi.Set(p, []string{provider}, "8/14/15", wait) // It fits into the tags of all providers.
		ofi.SetLibrary(p, lib, 10*time.Second)
	}
	return s
}

// member is a process of a job over a profile.
type member struct {
	t    testing.TB
	m    mtl.Module
	rank int32
}

func (m *member) incarnation() framework.Incarnation {
	return framework.Incarnation{ID: framework.MakeProcID(0, uint32(m.rank)), Nonce: uint64(m.rank) + 1}
}

func proc(job string, rank int32) framework.Proc {
	return framework.Proc{Namespace: job, Rank: uint32(rank)}
}

// openMember opens the module of a rank of a job of four on one node.
func openMember(job string, rank int32, set func(p any)) (mtl.Module, error) {
	return openUnder(discardUpcall{}, job, rank, set)
}

// openUnder is openMember with an upcall.
func openUnder(up mtl.Receiver, job string, rank int32, set func(p any)) (mtl.Module, error) {
	c := ofi.Component()
	p := c.Params()
	framework.FillDefaults(p)
	set(p)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	id := bootstrap.Identity{Proc: proc(job, rank), Size: 4, LocalSize: 4, LocalRank: int(rank)}
	self := framework.Incarnation{ID: framework.MakeProcID(0, uint32(rank)), Nonce: uint64(rank) + 1}
	return c.Open(ctx, mtl.Env{
		Env:    progress.Env{Identity: id, Worlds: framework.NewWorlds(job), Self: self, Logger: slog.New(slog.DiscardHandler)},
		Params: p, Upcall: up,
	})
}

// withProvider sets the parameters for a provider of the library, or for any if provider is "".
func withProvider(lib, provider string) func(p any) {
	return func(p any) {
		var list []string
		if provider != "" {
			list = []string{provider}
		}
		ofi.Set(p, list, "auto", "poll")
		ofi.SetLibrary(p, lib, 10*time.Second)
		ofi.SetWarn(p, false)
	}
}

// members opens the modules of ranks 0 to n-1, and closes them at the end of the test.
func members(t testing.TB, n int32, set func(p any)) []*member {
	t.Helper()
	var all []*member
	for rank := range n {
		m, err := openMember("job", rank, set)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		all = append(all, &member{t, m, rank})
	}
	return all
}

// refused returns the error of opening a module, which must fail.
func refused(t testing.TB, set func(p any)) error {
	t.Helper()
	m, err := openMember("job", 0, set)
	if err == nil {
		m.Close()
		t.Fatalf("it opens, over %s", m.Describe().Provider)
	}
	return err
}

func (m *member) to(other *member) mtl.Endpoint {
	m.t.Helper()
	to, err := m.m.Connect(framework.Peer{Incarnation: other.incarnation(), Proc: proc("job", other.rank), Blob: other.m.Blob()})
	if err != nil {
		m.t.Fatal(err)
	}
	return to
}

// send starts a message to other. The operation may be complete when it returns.
func (m *member) send(other *member, tag int32, buf []byte, mode mtl.Mode) (*onceOp, error) {
	o := newOnceOp()
	done, err := m.m.Send(&o.Op, m.to(other), mtl.Envelope{CID: 1, Source: m.rank, Tag: tag}, buf, mode)
	if done {
		o.completions++
	}
	return o, err
}

// receive posts a receive. other is nil for any source.
func (m *member) receive(other *member, tag int32, buf []byte) (*onceOp, error) {
	o, from, source := newOnceOp(), mtl.NoEndpoint, int32(mtl.AnySource)
	if other != nil {
		from, source = m.to(other), other.rank
	}
	return o, m.m.Recv(&o.Op, from, mtl.Envelope{CID: 1, Source: source, Tag: tag}, buf)
}

// pollUntilDone polls all modules until every operation is complete.
func pollUntilDone(t testing.TB, all []*member, ops ...*onceOp) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; {
		open := 0
		for _, o := range ops {
			if o.completions == 0 {
				open++
			}
		}
		if open == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d operations do not end", open, len(ops))
		}
		for _, m := range all {
			m.m.Poll()
		}
	}
}

// exchange sends a message from a to b.
func exchange(t testing.TB, a, b *member, n int) error {
	t.Helper()
	sent, got := make([]byte, n), make([]byte, n)
	for i := range sent {
		sent[i] = byte(i*7 + n)
	}
	r, err := b.receive(a, 3, got)
	if err != nil {
		return err
	}
	s, err := a.send(b, 3, sent, mtl.Synchronous)
	if err != nil {
		return err
	}
	pollUntilDone(t, []*member{a, b}, s, r)
	if err := errors.Join(s.Err, r.Err); err != nil {
		return err
	}
	if string(got) != string(sent) {
		return fmt.Errorf("%d bytes arrived changed", n)
	}
	return nil
}

// devices returns a fake /sys with devices such as "cxi/cxi0".
func devices(t testing.TB, names ...string) string {
	t.Helper()
	sys := t.TempDir()
	for _, name := range names {
		if err := os.MkdirAll(filepath.Join(sys, "class", name, "device"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return sys
}

// runChild runs profileChild in a child process, and returns its output.
func runChild(t testing.TB, what string, environment []string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(append(os.Environ(), childVariable+"=profile "+what), environment...)
	text, err := cmd.CombinedOutput()
	return string(text), err
}
