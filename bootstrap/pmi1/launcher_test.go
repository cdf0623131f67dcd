package pmi1

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/mesh"
	"github.com/ferrympi/ferry/bootstrap/pmi1/internal/wire"
	"github.com/ferrympi/ferry/bootstrap/pmi1/pmi1test"
	"github.com/ferrympi/ferry/framework"
)

var _ mesh.Launcher = (*launcher)(nil)

func TestMain(m *testing.M) {
	asRankOfHydra()
	goleak.VerifyTestMain(m)
}

const kvsname = "kvs_1_0_2_vm"

func server(t *testing.T, o pmi1test.Options) *pmi1test.Server {
	t.Helper()
	if o.Size == 0 {
		o.Size = 4
	}
	if o.KVSName == "" {
		o.KVSName = kvsname
	}
	s, err := pmi1test.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		for id := range o.Size {
			forget(serverAddress{fd: -1, port: s.Port(), pmiID: id})
		}
	})
	return s
}

// forget removes the process of a server address, because ports are reused.
func forget(at serverAddress) {
	processes.Lock()
	defer processes.Unlock()
	delete(processes.at, at.key())
}

func env(s *pmi1test.Server, rank int, timeout time.Duration) bootstrap.Env {
	return bootstrap.Env{Params: &Params{Port: s.Port(), ID: rank}, Timeout: timeout}
}

// rank returns a launcher of that rank.
func rank(t *testing.T, s *pmi1test.Server, rank int) *launcher {
	t.Helper()
	l, err := openLauncher(t.Context(), env(s, rank, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func proc(rank uint32) framework.Proc { return framework.Proc{Namespace: kvsname, Rank: rank} }

var styles = map[string]pmi1test.Style{"hydra 4.0.2": pmi1test.Hydra402, "new hydra": pmi1test.HydraNew, "slurm": pmi1test.Slurm}

func TestFind_OthersAreAbsent_TwoRanksFindEachOther(t *testing.T) {
	for name, style := range styles {
		t.Run(name, func(t *testing.T) {
			s := server(t, pmi1test.Options{Style: style})
			one, three := rank(t, s, 1), rank(t, s, 3)
			if _, ok, err := one.Find(t.Context(), proc(3)); ok || err != nil {
				t.Errorf("before it is there: %t, %v", ok, err)
			}
			for _, l := range []*launcher{one, three} {
				if err := l.Publish(t.Context(), []byte(l.Identity().Proc.String())); err != nil {
					t.Fatal(err)
				}
			}
			for _, l := range []*launcher{one, three} {
				other := proc(4 - l.Identity().Proc.Rank)
				if e, ok, err := l.Find(t.Context(), other); !ok || err != nil || string(e) != other.String() {
					t.Errorf("%v: %q, %t, %v", other, e, ok, err)
				}
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}
			if got := s.FinalizedRanks(); !slices.Equal(got, []int{1, 3}) || len(s.Violations()) > 0 {
				t.Errorf("finalized %v, killed because of %q", got, s.Violations())
			}
		})
	}
}

func TestPublish_EntryOfAnySize_IsFound(t *testing.T) {
	entry := make([]byte, mesh.MaxEntry+1)
	for i := range entry {
		entry[i] = byte(i * 7)
	}
	for _, n := range []int{0, 1, 450, 451, 1500, mesh.MaxEntry} {
		s := server(t, pmi1test.Options{})
		a, b := rank(t, s, 0), rank(t, s, 1)
		if err := a.Publish(t.Context(), entry[:n]); err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		got, ok, err := b.Find(t.Context(), proc(0))
		if !ok || err != nil || !bytes.Equal(got, entry[:n]) {
			t.Errorf("%d bytes: %d come, %t, %v", n, len(got), ok, err)
		}
		for _, line := range s.Requests() {
			if len(line)+1 > wire.MaxRequest {
				t.Errorf("%d bytes: a request of %d bytes", n, len(line))
			}
		}
		if n == mesh.MaxEntry {
			t.Logf("%d bytes take %d names", n, len(s.Names()))
		}
	}
	l := rank(t, server(t, pmi1test.Options{}), 0)
	if err := l.Publish(t.Context(), entry); !errors.Is(err, framework.ErrUnsupported) {
		t.Errorf("%d bytes: %v", len(entry), err)
	}
}

// The smallest accepted limits suffice for any entry.
func TestPublish_SmallestLimits_Succeeds(t *testing.T) {
	s := server(t, pmi1test.Options{})
	s.InjectFault(pmi1test.Fault{Cmd: "get_maxes", Response: "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=64\n"})
	l := rank(t, s, 0)
	if err := l.Publish(t.Context(), make([]byte, mesh.MaxEntry)); err != nil {
		t.Fatal(err)
	}
	for name, port := range s.Names() {
		if len(name) >= 64 || len(port) >= 64 {
			t.Errorf("%s=%s is over a limit", name, port)
		}
	}
}

func TestAddressName_AnyNamespace_Fits(t *testing.T) {
	seen := map[string]string{}
	for _, ns := range []string{"n", "12.0", kvsname, strings.Repeat("n", 41), strings.Repeat("n", 42), strings.Repeat("n", 255), "a b", "a\nb", "é"} {
		for _, base := range []string{addressName(framework.Proc{Namespace: ns, Rank: 1<<32 - 1}, 64), publicName(ns, "3"), publicName(ns, "")} {
			for _, part := range []int{0, 1, maxParts} {
				name := partName(base, part)
				if other, twice := seen[name]; twice || len(name) > 63 || strings.ContainsAny(name, " \n") {
					t.Errorf("namespace %q: the name %q (also of %q)", ns, name, other)
				}
				seen[name] = ns
			}
		}
	}
	if got := addressName(framework.Proc{Namespace: "12.0", Rank: 3}, 64); got != "ferry/12.0/3" {
		t.Errorf("a short namespace gives %s", got)
	}
}

// The server accepts one connection of a process.
func TestReopen_KnownEntries_AreFound(t *testing.T) {
	s := server(t, pmi1test.Options{})
	a, b, c := rank(t, s, 0), rank(t, s, 1), rank(t, s, 2)
	for i, l := range []*launcher{a, b, c} {
		if err := l.Publish(t.Context(), []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok, err := a.Find(t.Context(), proc(1)); !ok || err != nil {
		t.Fatal(ok, err)
	}
	id := a.Identity()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	before := len(s.Requests())
	for range 3 {
		again := rank(t, s, 0)
		if got := again.Identity(); got.Proc != id.Proc || got.Size != id.Size {
			t.Errorf("it was %+v and is %+v", id, got)
		}
		if err := again.Publish(t.Context(), []byte{0}); err != nil {
			t.Errorf("publish again: %v", err)
		}
		for r := range uint32(2) {
			if e, ok, err := again.Find(t.Context(), proc(r)); !ok || err != nil || !bytes.Equal(e, []byte{byte(r)}) {
				t.Errorf("find %d again: %v, %t, %v", r, e, ok, err)
			}
		}
		_, _, err := again.Find(t.Context(), proc(2))
		if !errors.Is(err, framework.ErrTransport) || !strings.Contains(err.Error(), "left its launcher") || !strings.Contains(err.Error(), "rank 2") {
			t.Errorf("find a process outside the job: %v", err)
		}
		if err := again.Abort(t.Context(), 1, ""); !errors.Is(err, framework.ErrTransport) {
			t.Errorf("abort: %v", err)
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}
	// Its entry remains for later processes.
	if _, ok, err := c.Find(t.Context(), proc(0)); !ok || err != nil {
		t.Errorf("the one that has closed is found: %t, %v", ok, err)
	}
	if said := s.Requests(); len(said) != before+1 {
		t.Errorf("the server receives %q after the goodbye", said[before:])
	}
}

func TestClose_LastClient_Finalizes(t *testing.T) {
	s := server(t, pmi1test.Options{})
	a, b := rank(t, s, 0), rank(t, s, 0)
	if err := a.Close(); err != nil || len(s.FinalizedRanks()) > 0 {
		t.Errorf("first Close: %v, finalized %v", err, s.FinalizedRanks())
	}
	if _, _, err := a.Find(t.Context(), proc(1)); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("find after Close: %v", err)
	}
	if err := a.Close(); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("second Close: %v", err)
	}
	if err := b.Publish(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if err := b.Close(); err != nil || !slices.Equal(s.FinalizedRanks(), []int{0}) {
		t.Errorf("last Close: %v, finalized %v", err, s.FinalizedRanks())
	}
}

// The connection continues, and the next Open uses it.
func TestOpen_IsCanceled_NextOpenSucceeds(t *testing.T) {
	s := server(t, pmi1test.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if l, err := openLauncher(ctx, env(s, 2, time.Minute)); err == nil {
		l.Close()
		t.Skip("it was faster than the context")
	} else if !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	l := rank(t, s, 2)
	if err := l.Close(); err != nil || !slices.Equal(s.FinalizedRanks(), []int{2}) {
		t.Errorf("%v, finalized %v", err, s.FinalizedRanks())
	}
}

func TestAbort_ReachesServer(t *testing.T) {
	s := server(t, pmi1test.Options{})
	var log bytes.Buffer
	e := env(s, 0, time.Minute)
	e.Logger = slog.New(slog.NewTextHandler(&log, nil))
	l, err := openLauncher(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Abort(t.Context(), 3, "no way on"); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if got := s.AbortStatuses(); !slices.Equal(got, []int{3}) || !strings.Contains(log.String(), "no way on") {
		t.Errorf("aborted %v, log %s", got, log.String())
	}
}

func TestCalls_ManyCallers_ShareConnection(t *testing.T) {
	s := server(t, pmi1test.Options{Size: 8})
	for r := range 8 {
		if err := rank(t, s, r).Publish(t.Context(), fmt.Append(nil, r)); err != nil {
			t.Fatal(err)
		}
	}
	found := make(chan error)
	for i := range 64 {
		go func() {
			l, err := openLauncher(t.Context(), env(s, 0, time.Minute))
			if err != nil {
				found <- err
				return
			}
			r := uint32(i % 8)
			e, ok, err := l.Find(t.Context(), proc(r))
			if err == nil && (!ok || string(e) != fmt.Sprint(r)) {
				err = fmt.Errorf("rank %d: %q, %t", r, e, ok)
			}
			found <- errors.Join(err, l.Close())
		}()
	}
	for range 64 {
		if err := <-found; err != nil {
			t.Error(err)
		}
	}
}
