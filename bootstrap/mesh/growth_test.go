package mesh

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// growTest is a job that grows, with its first clients open.
type growTest struct {
	*growingJob
	t     *testing.T
	lines *logLines
}

func newGrowTest(t *testing.T, on network, size int, timeout time.Duration) *growTest {
	t.Helper()
	lines := &logLines{}
	g := &growTest{newGrowingJob(newAddressBook(size), on, bootstrap.Env{Timeout: timeout, Logger: slog.New(lines)}), t, lines}
	t.Cleanup(func() {
		g.wg.Wait()
		for _, c := range g.clients {
			c.Crash()
		}
	})
	for rank := range size {
		if _, err := g.open(t.Context(), rank); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// at returns the calls of a rank. It waits for an added one.
func (g *growTest) at(rank int) *setCalls {
	g.t.Helper()
	c, err := g.client(g.t.Context(), rank)
	if err != nil {
		g.t.Fatal(err)
	}
	return newSetCalls(wrapped{c}, c)
}

// grow adds n processes to mpi://WORLD.
func (g *growTest) grow(n int) ([]string, error) {
	return g.at(0).Operate(g.t.Context(), bootstrap.PsetGrow, []string{bootstrap.PsetWorld}, bootstrap.PsetArgs{Add: n})
}

// integrate integrates a change in some ranks at the same time, and returns their errors.
func (g *growTest) integrate(delta string, ranks ...int) []error {
	g.t.Helper()
	errs := make([]error, len(ranks))
	done := make(chan struct{}, len(ranks))
	for i, rank := range ranks {
		calls := g.at(rank)
		go func() {
			_, errs[i] = calls.Integrate(g.t.Context(), delta, "")
			done <- struct{}{}
		}()
	}
	for range ranks {
		<-done
	}
	return errs
}

// procsOf returns processes by rank.
func (g *growTest) procsOf(ranks ...int) (all []framework.Proc) {
	for _, rank := range ranks {
		all = append(all, g.book.proc(rank))
	}
	return all
}

// checkMissing fails the test unless err names exactly missing and failed.
func checkMissing(t *testing.T, what string, err error, missing, failed []framework.Proc) {
	t.Helper()
	var m *framework.MissingError
	if !errors.As(err, &m) || !slices.Equal(m.Missing, missing) || !slices.Equal(m.Failed, failed) {
		t.Errorf("%s: %v, want missing %v and failed %v", what, err, missing, failed)
	}
}

func TestIdentity_OfJobThatCanGrow_HasTheLimitOfTheUser(t *testing.T) {
	b := newAddressBook(3)
	l := newGrowingJob(b, unix, bootstrap.Env{}).launcher(1)
	for _, s := range []struct {
		l                   Launcher
		maxRanks, most, max int
		isPossible          bool
	}{
		{l, 0, 12, 3, true},
		{l, 5, 5, 5, true},
		{l, 2, 3, 3, true},
		{launcher{b, 1}, 5, 3, 3, false},
	} {
		id, g, err := growthOf(s.l, bootstrap.Env{MaxRanks: s.maxRanks})
		if err != nil || g.most != s.most || id.MaxSize != s.max || g.isPossible != s.isPossible {
			t.Errorf("max_ranks %d: limit %d, MaxSize %d, %t, %v; want %+v", s.maxRanks, g.most, id.MaxSize, g.isPossible, err, s)
		}
	}
}

func TestOpen_IdentityContradictsHandOver_IsErrConfig(t *testing.T) {
	b := newAddressBook(2)
	g := newGrowingJob(b, unix, bootstrap.Env{})
	e := entry{nonce: 7}
	good := HandOver{Namespace: b.namespace, FirstRank: 2, Size: 2, MaxSize: 4, Entry: e.encode()}
	if _, got, err := growthOf(addedLauncher{g.launcher(3), good}, bootstrap.Env{}); err != nil || !got.isAdded() || got.rank0.nonce != 7 {
		t.Fatalf("a correct one: %+v, %v", got, err)
	}
	other := good
	other.Namespace = "other"
	bad := good
	bad.Entry = []byte{protocolVersion}
	for what, l := range map[string]Launcher{
		"a rank of others":   addedLauncher{g.launcher(1), good},
		"another namespace":  addedLauncher{g.launcher(3), other},
		"an entry cut short": addedLauncher{g.launcher(3), bad},
		"no hand-over":       identityOnly{addedLauncher{g.launcher(3), good}},
	} {
		if _, err := Open(t.Context(), bootstrap.Env{}, l); !errors.Is(err, framework.ErrConfig) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestOpen_AddedProcessHasExchange_IsErrUnsupported(t *testing.T) {
	b := newAddressBook(2)
	e := entry{nonce: 7}
	h := HandOver{Namespace: b.namespace, FirstRank: 2, Size: 2, MaxSize: 4, Entry: e.encode()}
	l := struct {
		addedLauncher
		Exchange
	}{addedLauncher{newGrowingJob(b, unix, bootstrap.Env{}).launcher(3), h}, exchangeLauncher{launcher{b, 3}, &memoryExchange{}}}
	if _, err := Open(t.Context(), bootstrap.Env{}, l); !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "set the exchange to meet") {
		t.Errorf("got %v", err)
	}
}

// identityOnly hides the optional interfaces of a launcher.
type identityOnly struct{ Launcher }

func TestGrow_AddedProcesses_ReachAllOthers(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		g := newGrowTest(t, on, 3, 20*time.Second)
		names, err := g.grow(2)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(g.integrate(names[0], 0, 1, 2, 3, 4)...); err != nil {
			t.Fatal(err)
		}
		finds := g.book.finds.Load()
		for rank := range 5 {
			if err := g.at(rank).Put(t.Context(), "name", []byte{byte(rank)}); err != nil {
				t.Fatal(err)
			}
		}
		for rank := 4; rank >= 1; rank-- {
			for other := range 5 {
				v, err := g.at(rank).Get(t.Context(), g.book.proc(other), "name")
				if err != nil || len(v) != 1 || v[0] != byte(other) {
					t.Errorf("rank %d gets %v of rank %d: %v", rank, v, other, err)
				}
			}
		}
		if again := g.book.finds.Load() - finds; again > 3*2 {
			t.Errorf("%d lookups at the launcher, want those of the first processes only", again)
		}
		_, err = g.at(4).Get(t.Context(), g.book.proc(9), "name")
		if !errors.Is(err, framework.ErrRank) {
			t.Errorf("a rank that was never assigned: %v", err)
		}
	})
}

func TestGrow_SpawnIsRefused_LateProcessesGetTheReason(t *testing.T) {
	g := newGrowTest(t, unix, 2, 20*time.Second)
	requests := make(chan SpawnRequest, 1)
	refusal := errors.New("not enough slots")
	replaceSpawn(g, func(_ context.Context, s SpawnRequest) error { requests <- s; return refusal })
	_, err := g.grow(2)
	if !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "2 requested, 0 fit: not enough slots") {
		t.Errorf("got %v", err)
	}
	s := <-requests
	if s.N != 2 || s.Program == "" || s.Dir == "" {
		t.Errorf("request %+v", s)
	}
	if err := g.spawn(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	for rank := 2; rank < 4; rank++ {
		_, err := g.at(rank).Integrate(t.Context(), bootstrap.PsetSelf, "")
		if !errors.Is(err, framework.ErrProcFailed) || !strings.Contains(err.Error(), "not enough slots") {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	replaceSpawn(g, g.spawn)
	names, err := g.grow(2)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(g.integrate(names[0], 0, 1, 4, 5)...); err != nil {
		t.Error(err)
	}
}

// replaceSpawn changes the launcher of rank 0, before it starts processes.
func replaceSpawn(g *growTest, f func(context.Context, SpawnRequest) error) {
	c := g.clients[0]
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.launcher.(spawningLauncher)
	l.spawn = f
	c.launcher = l
}

func TestGrow_LauncherDoesNotAnswer_ErrorNamesIt(t *testing.T) {
	g := newGrowTest(t, unix, 1, time.Second)
	replaceSpawn(g, func(ctx context.Context, _ SpawnRequest) error { <-ctx.Done(); return ctx.Err() })
	_, err := g.grow(1)
	if !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "no answer of the launcher of the test within 900ms") {
		t.Errorf("got %v", err)
	}
}

func TestGrow_FewerCome_DeadlineNamesTheMissingOnes(t *testing.T) {
	g := newGrowTest(t, unix, 2, 2*time.Second)
	replaceSpawn(g, func(_ context.Context, s SpawnRequest) error {
		h, err := DecodeHandOver(s.HandOver)
		if err == nil {
			_, err = g.openWith(t.Context(), 2, addedLauncher{g.launcher(2), h})
		}
		return err
	})
	names, err := g.grow(2)
	if err != nil {
		t.Fatal(err)
	}
	for i, err := range g.integrate(names[0], 0, 1, 2) {
		checkMissing(t, "rank "+string(rune('0'+i)), err, g.procsOf(3), nil)
	}
	_, err = g.at(1).Pset(t.Context(), names[1])
	if !errors.Is(err, framework.ErrPset) {
		t.Errorf("the main set: %v", err)
	}
	if err := awaitCondition("the process that came is refused", func() bool {
		_, err := g.at(2).Psets(t.Context())
		return errors.Is(err, framework.ErrProcFailed) && strings.Contains(err.Error(), "the change is undone: ranks [3] have not integrated it")
	}); err != nil {
		t.Error(err)
	}
}

func TestGrow_UnassignedRank_IsRefused(t *testing.T) {
	g := newGrowTest(t, unix, 2, 2*time.Second)
	first := g.clients[0]
	forged := HandOver{Namespace: g.book.namespace, FirstRank: 7, Size: 1, MaxSize: 4, Entry: first.ownEntry.encode()}
	if _, err := g.openWith(t.Context(), 7, addedLauncher{g.launcher(7), forged}); err != nil {
		t.Fatal(err)
	}
	if _, err := g.at(7).Integrate(t.Context(), bootstrap.PsetSelf, ""); !errors.Is(err, framework.ErrTimeout) {
		t.Errorf("integrate of rank 7: %v", err)
	}
	if g.lines.with("hello from rank 7 of 2") == 0 {
		t.Errorf("rank 0 logged %q", g.lines.lines)
	}
	if names, err := g.at(1).Psets(t.Context()); err != nil || len(names) > 0 {
		t.Errorf("the sets are %q, %v", names, err)
	}
}

func TestGrow_WrongEntryOfRank0_AddedProcessGetsAnError(t *testing.T) {
	g := newGrowTest(t, unix, 1, 3*time.Second)
	replaceSpawn(g, func(_ context.Context, s SpawnRequest) error {
		h, err := DecodeHandOver(s.HandOver)
		if err != nil {
			return err
		}
		wrong := g.clients[0].ownEntry
		wrong.key[0]++
		h.Entry = wrong.encode()
		_, err = g.openWith(t.Context(), 1, addedLauncher{g.launcher(1), h})
		return err
	})
	names, err := g.grow(1)
	if err != nil {
		t.Fatal(err)
	}
	late := make(chan error, 1)
	go func() {
		_, err := g.at(0).Integrate(t.Context(), names[0], "")
		late <- err
	}()
	if _, err := g.at(1).Integrate(t.Context(), bootstrap.PsetSelf, ""); !errors.Is(err, framework.ErrTransport) || !strings.Contains(err.Error(), errWrongKey.Error()) {
		t.Errorf("integrate with a wrong key: %v", err)
	}
	checkMissing(t, "integrate of rank 0", <-late, g.procsOf(1), nil)
}

func TestRank0_Ends_RequestsFailWithItsName(t *testing.T) {
	for what, end := range map[string]func(*client) error{
		"dies": (*client).Crash,
		"leaves": func(c *client) error {
			err := c.Close()
			c.Crash()
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			g := newGrowTest(t, unix, 3, 20*time.Second)
			names, err := g.grow(1)
			if err != nil {
				t.Fatal(err)
			}
			type result struct {
				what string
				err  error
			}
			results := make(chan result, 10)
			for rank := 1; rank < 4; rank++ {
				calls := g.at(rank)
				if _, _, err := calls.Query(t.Context(), bootstrap.PsetSelf, false); err != nil {
					t.Fatal(err)
				}
				go func() {
					_, err := calls.Integrate(t.Context(), names[0], "")
					results <- result{"integrate", err}
				}()
				go func() {
					var err error
					for err == nil { // An added process receives the change first.
						_, _, err = calls.Query(t.Context(), bootstrap.PsetSelf, true)
					}
					results <- result{"query", err}
				}()
			}
			if err := end(g.clients[0]); err != nil {
				t.Fatal(err)
			}
			for range 6 {
				r := <-results
				if !errors.Is(r.err, framework.ErrProcFailed) || !strings.HasSuffix(r.err.Error(), "failed: rank 0") {
					t.Errorf("%s: %v", r.what, r.err)
				}
			}
			if _, err := g.at(1).Operate(t.Context(), bootstrap.PsetUnion, []string{bootstrap.PsetWorld}, bootstrap.PsetArgs{}); !errors.Is(err, framework.ErrProcFailed) {
				t.Errorf("operate: %v", err)
			}
			group := g.procsOf(1, 2)
			if err := inAll([]*client{g.clients[1], g.clients[2]}, func(c *client) error { return c.Fence(t.Context(), group, "continue") }); err != nil {
				t.Errorf("the others do not continue: %v", err)
			}
		})
	}
}

func TestRank0_HasNoSession_DeadlineNamesIt(t *testing.T) {
	g := newGrowTest(t, unix, 2, time.Second)
	if _, err := g.at(0).Operate(t.Context(), bootstrap.PsetUnion, []string{bootstrap.PsetWorld}, bootstrap.PsetArgs{Name: "all"}); err != nil {
		t.Fatal(err)
	}
	if err := g.clients[0].Close(); err != nil {
		t.Fatal(err)
	}
	one := g.at(1)
	_, err := one.Operate(t.Context(), bootstrap.PsetUnion, []string{"all"}, bootstrap.PsetArgs{})
	checkMissing(t, "operate", err, g.procsOf(0), nil)
	_, _, err = one.Query(t.Context(), bootstrap.PsetWorld, true)
	checkMissing(t, "query", err, g.procsOf(0), nil)
	if _, err := g.open(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if info, err := one.Pset(t.Context(), "ALL"); err != nil || info.Members.Len() != 2 {
		t.Errorf("the set after rank 0 has returned: %+v, %v", info, err)
	}
}

// blockingSets is a launcher that answers no request for its sets.
type blockingSets struct {
	setLauncher
	calls chan<- struct{}
}

func (l blockingSets) Psets(ctx context.Context) ([]string, error) {
	l.calls <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestRank0_ClosesDuringFirstOperation_NextClientHasSetsOfTheLauncher(t *testing.T) {
	g := newGrowTest(t, unix, 0, 20*time.Second)
	g.book.size = 2
	calls := make(chan struct{}, 1)
	if _, err := g.openWith(t.Context(), 0, blockingSets{setLauncher{g.launcher(0)}, calls}); err != nil {
		t.Fatal(err)
	}
	if _, err := g.openWith(t.Context(), 1, setLauncher{g.launcher(1)}); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := g.at(1).Operate(t.Context(), bootstrap.PsetDifference, []string{bootstrap.PsetWorld, "ocean"}, bootstrap.PsetArgs{})
		done <- err
	}()
	<-calls
	if err := g.clients[0].Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := g.openWith(t.Context(), 0, setLauncher{g.launcher(0)}); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("operate on a set of the launcher: %v", err)
	}
}

// leavingSpawner leaves its launcher for good with its first client.
type leavingSpawner struct {
	spawningLauncher
	hasLeft *atomic.Bool
}

func (l leavingSpawner) Find(ctx context.Context, p framework.Proc) ([]byte, bool, error) {
	if l.hasLeft.Load() {
		return nil, false, ErrLauncherLeft
	}
	return l.spawningLauncher.Find(ctx, p)
}

func (l leavingSpawner) Close() error {
	l.hasLeft.Store(true)
	return nil
}

// Rank 0 has left its launcher before it needed the entry of rank 1, which has connected to it.
func TestRank0_HasLeftItsLauncher_AddedProcessReachesFirstOne(t *testing.T) {
	g := newGrowTest(t, unix, 0, 20*time.Second)
	g.book.size = 2
	l := leavingSpawner{g.launcher(0), &atomic.Bool{}}
	if _, err := g.openWith(t.Context(), 0, l); err != nil {
		t.Fatal(err)
	}
	if _, err := g.open(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if _, err := g.grow(1); err != nil {
		t.Fatal(err)
	}
	g.at(2)
	if err := g.clients[0].Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := g.openWith(t.Context(), 0, l); err != nil {
		t.Fatal(err)
	}
	if err := g.at(1).Put(t.Context(), "k", []byte("v")); err != nil {
		t.Fatal(err)
	}
	if v, err := g.at(2).Get(t.Context(), g.book.proc(1), "k"); err != nil || string(v) != "v" {
		t.Errorf("got %q, %v", v, err)
	}
}

func TestRank0_ClosesDuringSpawn_RequestIsRepeated(t *testing.T) {
	g := newGrowTest(t, unix, 2, 20*time.Second)
	calls := make(chan struct{}, 1)
	replaceSpawn(g, func(ctx context.Context, s SpawnRequest) error {
		calls <- struct{}{}
		<-ctx.Done()
		return g.spawn(ctx, s)
	})
	done := make(chan error, 1)
	go func() {
		names, err := g.at(1).Operate(t.Context(), bootstrap.PsetGrow, []string{bootstrap.PsetWorld}, bootstrap.PsetArgs{Add: 1})
		if err == nil {
			err = errors.Join(g.integrate(names[0], 0, 1, 3)...)
		}
		done <- err
	}()
	<-calls
	if err := g.clients[0].Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := g.open(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := g.at(2).Integrate(t.Context(), bootstrap.PsetSelf, ""); !errors.Is(err, framework.ErrProcFailed) {
		t.Errorf("integrate of the process of the first request: %v", err)
	}
}

// Rank 0 has the entry of a process that has connected to it, and this process lacks the entry.
func TestDial_Rank0RefusesDuringLookup_PeerIsNotReportedFailed(t *testing.T) {
	g := newGrowTest(t, unix, 2, time.Second)
	c := g.clients[1]
	c.mu.Lock()
	defer c.mu.Unlock()
	c.connectedRanks[2] = struct{}{}
	p := c.peerOf(2)
	p.state, p.incarnation = peerUnreachable, 7
	c.handleDialFailure(p, &lookupError{c.peerError(0, "connect", syscall.ECONNREFUSED)})
	if p.state != peerUnreachable || len(c.failures) > 0 {
		t.Errorf("state %v, failures %v", p.state, c.failures)
	}
	p.state = peerAbsent // No dial attempt remains.
}

func TestOperate_ThatRemovesRank0_IsErrUnsupported(t *testing.T) {
	g := newGrowTest(t, unix, 2, 20*time.Second)
	for _, op := range []bootstrap.PsetOp{bootstrap.PsetSub, bootstrap.PsetShrink, bootstrap.PsetReplace} {
		_, err := g.at(1).Operate(t.Context(), op, []string{bootstrap.PsetWorld}, bootstrap.PsetArgs{Sub: 2, Add: 1})
		if !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "it holds the process sets") {
			t.Errorf("%v: %v", op, err)
		}
	}
}

// setLauncher is a launcher with a process set.
type setLauncher struct{ spawningLauncher }

func (l setLauncher) Psets(context.Context) ([]string, error) { return []string{"ocean"}, nil }

func (l setLauncher) Pset(_ context.Context, name string) (bootstrap.PsetInfo, error) {
	if bootstrap.IsReserved(name) {
		return bootstrap.PsetInfo{}, errors.New("request for a set of ferry")
	}
	if bootstrap.PsetKey(name) != "ocean" {
		return bootstrap.PsetInfo{}, framework.ErrPset
	}
	return bootstrap.PsetInfo{Name: "ocean", Members: framework.ProcsOf(l.proc(1), l.proc(0))}, nil
}

func TestPsets_SetsOfTheLauncher_PrecedeThoseOfOperations(t *testing.T) {
	g := newGrowTest(t, unix, 0, 20*time.Second)
	g.book.size = 3
	for rank := range 3 {
		if _, err := g.openWith(t.Context(), rank, setLauncher{g.launcher(rank)}); err != nil {
			t.Fatal(err)
		}
	}
	made, err := g.at(1).Operate(t.Context(), bootstrap.PsetDifference, []string{bootstrap.PsetWorld, "Ocean"}, bootstrap.PsetArgs{Name: "land"})
	if err != nil {
		t.Fatal(err)
	}
	names, err := g.at(2).Psets(t.Context())
	if err != nil || !slices.Equal(names, []string{"ocean", "land"}) {
		t.Errorf("the sets are %q, %v", names, err)
	}
	info, err := g.at(2).Pset(t.Context(), made[0])
	if err != nil || !slices.Equal(info.Members.List(), g.procsOf(2)) || !info.Dynamic {
		t.Errorf("%+v, %v", info, err)
	}
	made, err = g.at(1).Operate(t.Context(), bootstrap.PsetUnion, []string{"land"}, bootstrap.PsetArgs{})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := g.at(2).Pset(t.Context(), made[0]); err != nil || info.Members.Len() != 1 {
		t.Errorf("%+v, %v", info, err)
	}
	if err := g.clients[0].Crash(); err != nil {
		t.Fatal(err)
	}
	names, err = g.at(2).Psets(t.Context())
	if err != nil || !slices.Equal(names, []string{"ocean"}) {
		t.Errorf("after the end of rank 0 the sets are %q, %v", names, err)
	}
}

// failingSets is a launcher that returns some errors before its set.
type failingSets struct {
	setLauncher
	listErrors, readErrors *atomic.Int32
}

func (l failingSets) Psets(ctx context.Context) ([]string, error) {
	if l.listErrors.Add(-1) >= 0 {
		return nil, errors.New("the launcher is busy")
	}
	return []string{"unreadable", "ocean"}, nil
}

func (l failingSets) Pset(ctx context.Context, name string) (bootstrap.PsetInfo, error) {
	if name == "unreadable" || l.readErrors.Add(-1) >= 0 {
		return bootstrap.PsetInfo{}, errors.New("the launcher is busy")
	}
	return l.setLauncher.Pset(ctx, name)
}

func TestOperate_LauncherReturnsErrorsForItsSets_SetsAreDefinedLater(t *testing.T) {
	for i := range 4 {
		listErrors, isReopened := int32(i%2), i >= 2
		g := newGrowTest(t, unix, 0, 20*time.Second)
		g.book.size = 2
		l := failingSets{setLauncher{g.launcher(0)}, &atomic.Int32{}, &atomic.Int32{}}
		l.listErrors.Store(listErrors)
		l.readErrors.Store(1)
		c, err := g.openWith(t.Context(), 0, l)
		if err != nil {
			t.Fatal(err)
		}
		if !isReopened { // Otherwise the next try comes too late.
			c.timeouts.lookup = time.Millisecond
		}
		operate := func(operand string) error {
			_, err := g.at(0).Operate(t.Context(), bootstrap.PsetUnion, []string{operand}, bootstrap.PsetArgs{})
			return err
		}
		if err := operate(bootstrap.PsetWorld); err != nil {
			t.Errorf("operate on a set of ferry: %v", err)
		}
		if isReopened {
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			if c, err = g.openWith(t.Context(), 0, l); err != nil {
				t.Fatal(err)
			}
			c.timeouts.lookup = time.Millisecond
		}
		eventually(t, "the set of the launcher is defined", func() bool {
			err := operate("ocean")
			if err != nil && !errors.Is(err, framework.ErrPset) {
				t.Fatal(err)
			}
			return err == nil
		})
		names, err := g.at(0).Psets(t.Context())
		if n := len(slices.DeleteFunc(names, func(name string) bool { return name != "ocean" })); n != 1 || err != nil {
			t.Errorf("the sets are %q, %v", names, err)
		}
	}
}

// leftSets is a launcher that this process has left.
type leftSets struct {
	setLauncher
	reads *atomic.Int32
}

func (l leftSets) Psets(context.Context) ([]string, error) {
	l.reads.Add(1)
	return nil, ErrLauncherLeft
}

func TestOperate_LauncherSetsAreMissing_OneRequestReadsThem(t *testing.T) {
	for _, isLeft := range []bool{false, true} {
		g := newGrowTest(t, unix, 0, 20*time.Second)
		g.book.size = 2
		reads := &atomic.Int32{}
		var l Launcher = leftSets{setLauncher{g.launcher(0)}, reads}
		if !isLeft {
			reads.Store(1 << 30)
			l = failingSets{setLauncher{g.launcher(0)}, reads, &atomic.Int32{}}
		}
		c, err := g.openWith(t.Context(), 0, l)
		if err != nil {
			t.Fatal(err)
		}
		before := reads.Load()
		var wg sync.WaitGroup
		for range 8 {
			calls := g.at(0)
			wg.Go(func() {
				if _, err := calls.Operate(t.Context(), bootstrap.PsetUnion, []string{bootstrap.PsetWorld}, bootstrap.PsetArgs{}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		c.mu.Lock()
		isPending := c.setDefinition.isPending
		c.mu.Unlock()
		warnings := g.lines.with("do not know all process sets")
		if n := max(reads.Load(), before) - min(reads.Load(), before); n != 1 || warnings != 1 || isPending == isLeft {
			t.Errorf("left: %v; %d reads, %d warnings, another try is pending: %v", isLeft, n, warnings, isPending)
		}
	}
}

// Rank 0 may finish before the others. The list of sets of a job without any is then empty.
func TestPsets_Rank0HasEnded_ListIsEmpty(t *testing.T) {
	g := newGrowTest(t, unix, 2, 20*time.Second)
	if err := g.clients[0].Crash(); err != nil {
		t.Fatal(err)
	}
	if names, err := g.at(1).Psets(t.Context()); err != nil || len(names) > 0 {
		t.Errorf("the sets are %q, %v", names, err)
	}
}

func TestGrow_LauncherCannotStart_ErrorNamesIt(t *testing.T) {
	j := newTestJob(t, unix, 1)
	for what, l := range map[string]Launcher{
		"the launcher of this job starts no processes":             launcher{j.addressBook, 0},
		"the launcher of this job with constructs by its barriers": exchangeLauncher{launcher{newAddressBook(1), 0}, &memoryExchange{}},
	} {
		c, err := openOn(t.Context(), unix, l, j.env)
		if err != nil {
			t.Fatal(err)
		}
		j.clients = append(j.clients, c)
		_, err = newSetCalls(wrapped{c}, c).Operate(t.Context(), bootstrap.PsetAdd, []string{bootstrap.PsetWorld}, bootstrap.PsetArgs{Add: 1})
		if !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), what) {
			t.Errorf("got %v, want %s", err, what)
		}
	}
}

// A process that has left by a change has ended for the sets once it closes its session.
func TestShrink_ProcessCloses_ItsStateIsDropped(t *testing.T) {
	g := newGrowTest(t, unix, 1, 20*time.Second)
	const rounds = 20
	main := bootstrap.PsetWorld
	for i := range rounds {
		names, err := g.at(0).Operate(t.Context(), bootstrap.PsetGrow, []string{main}, bootstrap.PsetArgs{Add: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(g.integrate(names[0], 0, 1+i)...); err != nil {
			t.Fatal(err)
		}
		if err := g.at(0).FinishChange(t.Context(), names[0]); err != nil {
			t.Fatal(err)
		}
		less, err := g.at(0).Operate(t.Context(), bootstrap.PsetShrink, []string{names[1]}, bootstrap.PsetArgs{Sub: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(g.integrate(less[0], 0, 1+i)...); err != nil {
			t.Fatal(err)
		}
		if err := g.at(0).FinishChange(t.Context(), less[0]); err != nil {
			t.Fatal(err)
		}
		if err := g.at(1 + i).Close(); err != nil {
			t.Fatal(err)
		}
		main = less[1]
	}
	c := g.clients[0]
	if err := awaitCondition("the processes have ended for the sets", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, _, ok := c.sets.World(rounds)
		return !ok
	}); err != nil {
		t.Error(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, _, ok := c.sets.World(1); ok || len(c.failures) > 0 {
		t.Errorf("rank 1 is recorded %t, and %d failures", ok, len(c.failures))
	}
}

func TestOwnEntry_OfAnotherProcess_EndsTheConnection(t *testing.T) {
	g := newGrowTest(t, unix, 2, 20*time.Second)
	names, err := g.grow(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(g.integrate(names[0], 0, 1, 2)...); err != nil {
		t.Fatal(err)
	}
	e := entry{nonce: 99}
	for what, frame := range map[string][]byte{
		"another process's entry": encodeFrame(wire.OwnEntry, 0, wire.EntryBody{Entry: e.encode()}),
		"a malformed entry":       encodeFrame(wire.OwnEntry, 0, wire.EntryBody{Entry: []byte{9}}),
		"an unknown operation":    encodeFrame(wire.Change, 5, wire.ChangeBody{Op: 77, Args: wire.EncodeBody(wire.Empty{})}),
		"malformed arguments":     encodeFrame(wire.Change, 6, wire.ChangeBody{Op: wire.FindEntry, Args: wire.EncodeBody(wire.NameBody{})}),
	} {
		nc, _ := impostor(t, unix, g.clients[0], 2)
		if _, err := nc.Write(frame); err != nil {
			t.Fatal(err)
		}
		checkClosed(t, what, nc)
	}
	if v, err := g.at(1).Psets(t.Context()); err != nil || len(v) != 2 {
		t.Errorf("the sets are %q, %v", v, err)
	}
}

// Rank 0 answers each withdrawal of the query, so the query has no deadline.
func TestQuery_PendingForManyTimeouts_ReturnsTheChange(t *testing.T) {
	g := newGrowTest(t, unix, 2, 50*time.Millisecond)
	one := g.at(1)
	if _, err := one.Psets(t.Context()); err != nil { // The processes are connected.
		t.Fatal(err)
	}
	changes := make(chan bootstrap.Change, 1)
	go func() {
		change, _, err := one.Query(t.Context(), bootstrap.PsetWorld, true)
		if err != nil {
			t.Error(err)
		}
		changes <- change
	}()
	for range 5 {
		if _, err := g.at(0).LookupData(t.Context(), bootstrap.PsetWorld, "never"); !errors.Is(err, framework.ErrTimeout) {
			t.Fatal(err)
		}
	}
	names, err := g.at(0).Operate(t.Context(), bootstrap.PsetShrink, []string{bootstrap.PsetWorld}, bootstrap.PsetArgs{Sub: 1})
	if err != nil {
		t.Fatal(err)
	}
	if change := <-changes; change.Delta != names[0] || !change.Included {
		t.Errorf("the change is %+v, want %q", change, names)
	}
}

// The other members of a watched set have no connection with the process.
func TestQuery_MemberWithoutConnectionDies_ReturnsItsFailure(t *testing.T) {
	g := newGrowTest(t, unix, 3, 20*time.Second)
	changes := make(chan bootstrap.Change, 1)
	go func() {
		change, _, err := g.at(1).Query(t.Context(), bootstrap.PsetWorld, true)
		if err != nil {
			t.Error(err)
		}
		changes <- change
	}()
	if err := awaitCondition("rank 0 is connected to rank 2", func() bool { return g.at(0).c.isConnected(2) }); err != nil {
		t.Fatal(err)
	}
	if err := g.at(2).c.Crash(); err != nil {
		t.Fatal(err)
	}
	if change := <-changes; change.Type != bootstrap.ChangeFailed {
		t.Errorf("the change is %+v", change)
	}
}

// A job that can't grow shrinks, too.
func TestShrink_ProcessKeepsItsSession_IsLogged(t *testing.T) {
	g := newGrowTest(t, unix, 0, 20*time.Second)
	g.book.size = 2
	for rank := range 2 {
		if _, err := g.openWith(t.Context(), rank, launcher{g.book, rank}); err != nil {
			t.Fatal(err)
		}
	}
	g.clients[0].timeouts.exitGrace = 10 * time.Millisecond
	names, err := g.at(0).Operate(t.Context(), bootstrap.PsetShrink, []string{bootstrap.PsetWorld}, bootstrap.PsetArgs{Sub: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(g.integrate(names[0], 0, 1)...); err != nil {
		t.Fatal(err)
	}
	const text = "processes that left by a change still have a session"
	if err := awaitCondition("rank 0 logs the process", func() bool { return g.lines.with(text) == 1 }); err != nil {
		t.Error(err)
	}
	if err := g.at(1).Close(); err != nil {
		t.Fatal(err)
	}
	if err := awaitCondition("rank 0 has received the goodbye", func() bool { return len(g.at(0).c.linksTo(1)) == 0 }); err != nil {
		t.Fatal(err)
	}
	g.at(0).c.logRemaining([]int{1})
	if n := g.lines.with(text); n != 1 {
		t.Errorf("%d log lines after the process has closed, want 1", n)
	}
}

func TestGrow_BeyondTheLimit_ErrorNamesTheParameter(t *testing.T) {
	g := newGrowTest(t, unix, 2, 20*time.Second)
	_, err := g.grow(7)
	if !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "7 requested, 6 fit: the job may have 8 at a time (bootstrap.max_ranks)") {
		t.Errorf("got %v", err)
	}
}
