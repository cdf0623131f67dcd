package mpi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local"
	"github.com/ferrympi/ferry/bootstrap/local/localtest"
	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
	"github.com/ferrympi/ferry/pml"
)

// noLeak checks, after all that is cleaned up later than here, that no goroutine
// is left.
func noLeak(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
}

func TestSingleton_Messages_Arrive(t *testing.T) {
	noLeak(t)
	s, c := singleton(t)
	if s.ThreadLevel() != mpi.ThreadMultiple || c.Size() != 1 || c.Rank() != 0 {
		t.Errorf("level %d, size %d, rank %d", s.ThreadLevel(), c.Size(), c.Rank())
	}
	r, err := c.Irecv(make([]byte, 5), 0, 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Send(nil, []byte("hello"), 0, 3); err != nil { // a nil context is Background
		t.Fatal(err)
	}
	if st, err := r.Wait(nil); err != nil || st != (mpi.Status{Source: 0, Tag: 3, Bytes: 5}) {
		t.Errorf("%+v, %v", st, err)
	}
	if err := mpi.Barrier(nil, c); err != nil {
		t.Error(err)
	}
	if err := s.Close(); !errors.Is(err, mpi.ErrPending) {
		t.Errorf("Close with an open communicator: %v", err)
	}
	c.SetName("mine")
	if x, err := c.Inspect(); err != nil || x.Name != "mine" {
		t.Errorf("%+v, %v", x, err)
	}
	if err := errors.Join(c.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	g, groupErr := s.Group(t.Context(), "mpi://SELF")
	_, psetsErr := s.Psets(t.Context())
	_, explainErr := s.Explain(t.Context())
	for what, err := range map[string]error{"Close": s.Close(), "Group": groupErr, "Psets": psetsErr, "Explain": explainErr} {
		if !errors.Is(err, mpi.ErrClosed) || g != nil {
			t.Errorf("%s after Close: %v", what, err)
		}
	}
}

func TestCommFromGroup_SessionClosed_ReturnsErrClosed(t *testing.T) {
	s, err := mpi.OpenSession(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g, err := s.Group(t.Context(), "mpi://WORLD")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := mpi.CommFromGroup(t.Context(), g, "x"); !errors.Is(err, mpi.ErrClosed) {
		t.Errorf("%v", err)
	}
	if g.Size() != 1 || g.Union(g).Rank() != 0 {
		t.Error("a group is local, and outlives its session")
	}
}

func TestCommFromGroup_EmptyGroup_ReturnsErrNoComm(t *testing.T) {
	s, _ := singleton(t)
	g, err := s.Group(t.Context(), "mpi://SELF")
	if err != nil {
		t.Fatal(err)
	}
	for _, empty := range []*mpi.Group{nil, g.Difference(g), (*mpi.Group)(nil).Union(nil)} {
		if _, err := mpi.CommFromGroup(t.Context(), empty, "x"); !errors.Is(err, mpi.ErrNoComm) {
			t.Errorf("%v", err)
		}
	}
}

func TestOpenSession_InvalidConfiguration_ReturnsErrConfig(t *testing.T) {
	noLeak(t)
	for want, opt := range map[string]mpi.SessionOption{
		"btl.shm":        mpi.WithParam("btl.shn.ring", "1"), // names the nearest
		"cid.policy":     mpi.WithParam("cid.policy", "sometimes"),
		"is an MTL here": mpi.WithParam("pml", "ucx"),
		"shm":            mpi.WithParam("btl", "shmm"),
		"progress.spin":  mpi.WithParam("progress.spin", "quick"),
		"thread level":   mpi.WithThreadLevel(99),
		"session.linger": mpi.WithParam("session.linger", "-1s"),
	} {
		s, err := mpi.OpenSession(t.Context(), opt)
		if !errors.Is(err, mpi.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error that names %s: %v", want, err)
		}
		if s != nil {
			t.Fatal("a session came with the error")
		}
	}
	// It binds although ob1 needs no MTL.
	if _, err := mpi.OpenSession(t.Context(), mpi.WithParam("mtl", "ofi"), mpi.WithParam("mtl.ofi.library", "/nonexistent/libfabric.so.1")); !errors.Is(err, mpi.ErrConfig) || !strings.Contains(err.Error(), "libfabric") {
		t.Errorf("want an error that names libfabric: %v", err)
	}
	singleton(t) // a failed first one can be tried again
}

func TestOpenSession_BootstrapFails_IsNoSingleton(t *testing.T) {
	noLeak(t)
	_, err := mpi.OpenSession(t.Context(), mpi.WithParam("bootstrap.local.address", "unix:/nonexistent/socket"),
		mpi.WithParam("bootstrap.local.namespace", "job"))
	if !errors.Is(err, mpi.ErrTransport) {
		t.Errorf("%v", err)
	}
}

func TestOpenSession_ProcessScopeDiffers_ReturnsErrConfig(t *testing.T) {
	noLeak(t)
	first, _ := singleton(t, mpi.WithParam("progress.spin", "7us"))
	_, err := mpi.OpenSession(t.Context(), mpi.WithParam("progress.spin", "8us"))
	if !errors.Is(err, mpi.ErrConfig) || !strings.Contains(err.Error(), "progress.spin") ||
		!strings.Contains(err.Error(), "7us") || !strings.Contains(err.Error(), "8us") {
		t.Errorf("%v", err)
	}
	if _, err := mpi.OpenSession(t.Context(), mpi.WithRegistry(components.Standard())); !errors.Is(err, mpi.ErrConfig) {
		t.Errorf("another registry: %v", err)
	}
	for _, opt := range []mpi.SessionOption{
		mpi.WithParam("progress.spin", "7us"), mpi.WithParam("session.linger", "1s"),
		mpi.WithParam("cid.policy", "lazy"), mpi.WithThreadLevel(mpi.ThreadSingle),
	} {
		s, err := mpi.OpenSession(t.Context(), opt)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := first.Psets(t.Context()); err != nil {
		t.Errorf("the first session after others: %v", err)
	}
}

// counting is a bootstrap client that counts the calls that would reach the server.
type counting struct {
	bootstrap.Client
	calls atomic.Int64
}

func (c *counting) Unwrap() any { return c.Client }

func (c *counting) Put(ctx context.Context, key string, value []byte) error {
	c.calls.Add(1)
	return c.Client.Put(ctx, key, value)
}

func (c *counting) Get(ctx context.Context, p framework.Proc, key string) ([]byte, error) {
	c.calls.Add(1)
	return c.Client.Get(ctx, p, key)
}

func (c *counting) Fence(ctx context.Context, group []framework.Proc, tag string) error {
	c.calls.Add(1)
	return c.Client.Fence(ctx, group, tag)
}

func (c *counting) Construct(ctx context.Context, group []framework.Proc, tag string, b []byte) (bootstrap.Constructed, error) {
	c.calls.Add(1)
	return c.Client.Construct(ctx, group, tag, b)
}

// watched is a BTL that counts connections.
type watched struct {
	btl.Component
	connects *atomic.Int64
}

func (w watched) Open(ctx context.Context, env btl.Env) (btl.Module, error) {
	m, err := w.Component.Open(ctx, env)
	return watchedModule{m, w.connects}, err
}

type watchedModule struct {
	btl.Module
	connects *atomic.Int64
}

func (m watchedModule) Connect(p framework.Peer) (btl.Endpoint, error) {
	m.connects.Add(1)
	return m.Module.Connect(p)
}

func TestOpenSession_Local_SendsNothing(t *testing.T) {
	client, err := local.Component().Open(t.Context(), bootstrap.Env{Params: &local.Params{}})
	if err != nil {
		t.Fatal(err)
	}
	counted := &counting{Client: client}
	var connects atomic.Int64
	standard, reg := components.Standard(), framework.NewRegistry()
	for _, kind := range standard.Kinds() {
		for _, c := range standard.Components(kind) {
			if b, ok := c.(btl.Component); ok {
				c = watched{b, &connects}
			}
			reg.Register(c)
		}
	}
	s, err := mpi.OpenSession(t.Context(), mpi.WithBootstrap(counted), mpi.WithRegistry(reg), mpi.WithParam("pml", "ob1"))
	if err != nil {
		t.Fatal(err)
	}
	g, err := s.Group(t.Context(), "mpi://WORLD")
	if err != nil {
		t.Fatal(err)
	}
	if counted.calls.Load()+connects.Load() != 0 {
		t.Errorf("opening a session made %d calls and %d connections", counted.calls.Load(), connects.Load())
	}
	c, err := mpi.CommFromGroup(t.Context(), g, "x")
	if err != nil {
		t.Fatal(err)
	}
	if counted.calls.Load() != 1 {
		t.Errorf("a communicator made %d calls, want one construct: the wrapper counts nothing", counted.calls.Load())
	}
	d, err := c.Dup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if counted.calls.Load() != 1 || connects.Load() != 0 {
		t.Errorf("dup sent something: %d calls, %d connections", counted.calls.Load(), connects.Load())
	}
	if err := errors.Join(d.Close(), c.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if err := client.Close(); err != nil {
		t.Errorf("a client that was given is the giver's to close: %v", err)
	}
}

// noProtocol is the receiver of a BTL without a protocol.
type noProtocol struct{}

func (noProtocol) Accept(framework.Incarnation) btl.Inbound  { return nil }
func (noProtocol) Limits(framework.Incarnation, int, int)    {}
func (noProtocol) PathDown(framework.Incarnation, error)     {}
func (noProtocol) LinkChanged(framework.Incarnation, string) {}
func (noProtocol) Card(framework.Incarnation) (framework.Peer, bool) {
	return framework.Peer{}, false
}
func (noProtocol) PeerChanged(framework.PeerEvent) {}

// failing is a PML that opens its BTLs and then fails.
type failing struct{ framework.Component }

func (failing) Info() framework.Info {
	return framework.Info{Kind: framework.PML, Name: "failing", Version: "0", Priority: 99}
}

func (failing) Open(_ context.Context, env pml.Env) (pml.Module, error) {
	if _, err := env.Modules.Open(framework.BTL, func(string) any { return noProtocol{} }); err != nil {
		return nil, err
	}
	return nil, errors.New("out of luck")
}

func TestOpenSession_PMLFails_FallsBackUnlessRequested(t *testing.T) {
	noLeak(t)
	ob1, _ := components.Standard().Lookup(framework.PML, "ob1")
	reg := components.Standard()
	reg.Register(failing{ob1})
	_, err := mpi.OpenSession(t.Context(), mpi.WithRegistry(reg), mpi.WithParam("pml", "failing"))
	if !errors.Is(err, mpi.ErrConfig) || !strings.Contains(err.Error(), "out of luck") {
		t.Errorf("asked for: %v", err)
	}
	s, c := singleton(t, mpi.WithRegistry(reg))
	if _, err := c.Sendrecv(t.Context(), []byte{1}, 0, 0, make([]byte, 1), 0, 0); err != nil {
		t.Error(err)
	}
	x, err := s.Explain(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := x.String(); !strings.Contains(got, "pml failing: failed: out of luck") || !strings.Contains(got, "pml ob1: selected") {
		t.Errorf("%s", got)
	}
}

func TestSessions_OverlapAndReopen_Work(t *testing.T) { ranks(t, 2, sessions) }

func sessions(ctx context.Context) error {
	errs := make([]error, 8)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for round := range 5 {
				if err := oneSession(ctx, fmt.Sprintf("session %d", i)); err != nil {
					errs[i] = fmt.Errorf("session %d round %d: %w", i, round, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	// Never two at a time: each one starts and ends everything.
	for range 10 {
		if err := oneSession(ctx, "alone"); err != nil {
			return err
		}
	}
	return nil
}

func oneSession(ctx context.Context, tag string) error {
	return inSession(ctx, tag, func(c *mpi.Comm) error {
		peer := 1 - c.Rank()
		buf := make([]byte, 100)
		_, err := c.Sendrecv(ctx, []byte(tag), peer, 0, buf, peer, 0)
		return errors.Join(err, must(string(buf[:len(tag)]) == tag, "received %q", buf))
	})
}

func inSession(ctx context.Context, tag string, f func(*mpi.Comm) error) error {
	s, err := mpitest.Open(ctx)
	if err != nil {
		return err
	}
	world, err := s.Group(ctx, "mpi://WORLD")
	if err != nil {
		return err
	}
	c, err := mpi.CommFromGroup(ctx, world, tag)
	if err != nil {
		return err
	}
	return errors.Join(f(c), c.Close(), s.Close())
}

func TestSessionClose_AcceptedSends_AreFlushed(t *testing.T) { ranks(t, 2, linger) }

// linger leaves at once in rank 0, after small and large sends.
func linger(ctx context.Context) error {
	return inSession(ctx, "linger", func(c *mpi.Comm) error {
		if c.Rank() == 0 {
			for i := range 2000 {
				if err := c.Send(ctx, []byte{byte(i)}, 1, 0); err != nil {
					return err
				}
			}
			r, err := c.Isend(pattern(4<<20, 3), 1, 1)
			if err != nil {
				return err
			}
			return r.Free()
		}
		big := make([]byte, 4<<20)
		if _, err := c.Recv(ctx, big, 0, 1); err != nil {
			return err
		}
		if !bytes.Equal(big, pattern(len(big), 3)) {
			return errors.New("the large message is damaged")
		}
		for i := range 2000 {
			var b [1]byte
			if _, err := c.Recv(ctx, b[:], 0, 0); err != nil || b[0] != byte(i) {
				return fmt.Errorf("message %d: %v, %w", i, b, err)
			}
		}
		return nil
	})
}

func TestSession_Reports_AreSentToLauncher(t *testing.T) {
	t.Parallel()
	r := localtest.Run(t, 2, "report", "FERRY_SESSION_REPORT=explain")
	for rank, reports := range r.Reports {
		var x mpi.Explanation
		if err := json.Unmarshal(reports["explain"], &x); err != nil {
			t.Fatalf("rank %d: %v: %q", rank, err, reports["explain"])
		}
		if len(x.Pairs) != 2 || x.Pairs[1].FromRank != rank || x.Pairs[1].ToRank != 1-rank || x.Pairs[1].PML != "ob1" || x.Pairs[1].Transport != "shm" {
			t.Errorf("rank %d: pairs %+v", rank, x.Pairs)
		}
	}
}

func report(ctx context.Context, s *mpi.Session, c *mpi.Comm) error {
	if err := mpi.Barrier(ctx, c); err != nil { // the peer is there when explain looks
		return err
	}
	x, err := s.Explain(ctx)
	if err != nil {
		return err
	}
	verdicts := map[string]string{}
	for _, v := range x.Components {
		verdicts[v.Framework+" "+v.Name] = v.Verdict
		if v.Verdict != "selected" && v.Reason == "" {
			return fmt.Errorf("%s %s is %s without a reason", v.Framework, v.Name, v.Verdict)
		}
	}
	to, err := c.Transport(1 - c.Rank())
	if err != nil {
		return err
	}
	self, err := c.Transport(c.Rank())
	if err != nil {
		return err
	}
	return errors.Join(
		must(verdicts["pml ob1"] == "selected" && verdicts["btl shm"] == "selected" && verdicts["pml cm"] == "not selected", "verdicts %v", verdicts),
		must(to.PML == "ob1" && to.Component == "shm" && to.Device != "", "transport %+v", to),
		must(self.Component == "self", "transport to itself %+v", self),
		must(strings.Contains(x.String(), "ob1 over shm") && strings.Contains(x.String(), "pml cm: not selected"), "%s", x))
}

func TestStats_Messages_AreCounted(t *testing.T) { ranks(t, 2, inWorld(stats)) }

func stats(ctx context.Context, s *mpi.Session, c *mpi.Comm) error {
	peer := 1 - c.Rank()
	if err := mpi.Barrier(ctx, c); err != nil {
		return err
	}
	of := func() mpi.PeerStats {
		for _, p := range s.Stats().Peers {
			if p.Proc == c.Group().Members()[peer] {
				return p
			}
		}
		return mpi.PeerStats{}
	}
	before := of()
	for range 10 {
		if _, err := c.Sendrecv(ctx, make([]byte, 100), peer, 0, make([]byte, 100), peer, 0); err != nil {
			return err
		}
	}
	after := of()
	return errors.Join(must(after.Sent-before.Sent == 10 && after.SentBytes-before.SentBytes == 1000, "sent: %+v, %+v", before, after),
		must(after.ReceivedBytes >= before.ReceivedBytes+900 && after.Transport == "shm", "received: %+v, %+v", before, after))
}
