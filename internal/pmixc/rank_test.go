package pmixc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ferrympi/ferry/internal/pmixc/pmixtest"
)

func TestMain(m *testing.M) {
	pmixtest.Main(m, map[string]pmixtest.Program{
		"alone": alone, "leave": leave, "again": member(again), "describe": member(describe), "exchange": member(exchange), "fence": member(fence), "far": member(far),
		"deaths": member(deaths), "group": member(group), "psets": member(psets), "signals": member(signals), "spawned": member(spawned), "spawning": member(spawning), "hang": member(hang), "abort": member(abort),
	}, func() error { return goleak.Find() })
}

// member runs a program between Init and Finalize, because Open MPI's launcher ends a job with a
// process that omits them.
func member(f func(ctx context.Context, l *Library, p Proc) error) pmixtest.Program {
	return func(ctx context.Context) error {
		l, err := Load(Soname)
		if err != nil {
			return err
		}
		p, err := l.Init(ctx)
		if err != nil {
			return err
		}
		return errors.Join(f(ctx, l, p), l.Finalize(ctx))
	}
}

func alone(ctx context.Context) error {
	l, err := Load(Soname)
	if err != nil {
		return err
	}
	begin := time.Now()
	p, err := l.Init(ctx)
	if err == nil {
		return fmt.Errorf("this is %v", p)
	}
	fmt.Printf("%v after %v\n", err, time.Since(begin))
	return nil
}

// describe prints the server's description of the job.
func describe(ctx context.Context, l *Library, p Proc) error {
	size, err := l.Get(ctx, Proc{p.Namespace, Wildcard}, JobSize, 0)
	if err != nil {
		return err
	}
	peers, err := l.Get(ctx, Proc{p.Namespace, Wildcard}, LocalPeers, 0)
	if err != nil && !Is(err, NotFound) {
		return err
	}
	fmt.Printf("rank %d: size %d kind %d, peers %q %v, initialized %t\n", p.Rank, size.Number, size.Kind, peers.Bytes, err, l.Initialized())
	return nil
}

func TestGet_Job_IsDescribed(t *testing.T) {
	library(t)
	out := pmixtest.Run(t, pmixtest.Server(t, "-n", "4", "-nodes", "2"), "describe")
	for rank, peers := range []string{"0,1", "0,1", "2,3", "2,3"} {
		if want := fmt.Sprintf("rank %d: size 4 kind 1, peers %q <nil>, initialized true", rank, peers); !strings.Contains(out, want) {
			t.Errorf("want %s in\n%s", want, out)
		}
	}
	out = pmixtest.Run(t, pmixtest.Server(t, "-n", "1", "-no-peers"), "describe")
	if !strings.Contains(out, "rank 0: size 1 kind 1") {
		t.Errorf("without peers: %s", out)
	}
	t.Log(out)
}

// exchange lets ranks 1 and 3 read each other's values, while the others wait for their end.
func exchange(ctx context.Context, l *Library, p Proc) error {
	if p.Rank%2 == 0 {
		return pmixtest.AwaitFlags(ctx, "done1", "done3")
	}
	value := slices.Repeat([]byte{byte(p.Rank), 0}, 1000)
	err := errors.Join(l.Put(ctx, "ferry.test", value), l.Commit(ctx))
	if err != nil {
		return err
	}
	other := Proc{p.Namespace, 4 - p.Rank}
	begin := time.Now()
	var v Value
	for tries := 1; ; tries++ {
		if v, err = l.Get(ctx, other, "ferry.test", 0); err == nil {
			fmt.Printf("rank %d: found after %v and %d tries\n", p.Rank, time.Since(begin), tries)
			break
		}
		if !Is(err, NotFound) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	if want := slices.Repeat([]byte{byte(other.Rank), 0}, 1000); v.Kind != KindText || !slices.Equal(v.Bytes, want) {
		return fmt.Errorf("%v has put %d %d bytes", other, v.Kind, len(v.Bytes))
	}
	const times = 200
	for _, key := range []string{"ferry.test", "ferry.nothing"} {
		begin = time.Now()
		for range times {
			if _, err = l.Get(ctx, other, key, 0); err != nil && !Is(err, NotFound) {
				return err
			}
		}
		fmt.Printf("rank %d: get of %s: %v each, %v\n", p.Rank, key, time.Since(begin)/times, err)
	}
	return pmixtest.SetFlag(fmt.Sprint("done", p.Rank), "")
}

// An exchange concerns its two processes only.
func TestGet_OthersWait_TwoRanksFindEachOther(t *testing.T) {
	library(t)
	for name, launcher := range map[string][]string{"server": pmixtest.Server(t, "-n", "4"), "mpirun": pmixtest.Mpirun(t, 4)} {
		t.Run(name, func(t *testing.T) {
			t.Log(pmixtest.Run(t, launcher, "exchange"))
		})
	}
}

// far lets rank 0 read the values of rank 1, which is on another node.
func far(ctx context.Context, l *Library, p Proc) error {
	const key = "ferry.test"
	if p.Rank == 1 {
		return errors.Join(l.Put(ctx, key, []byte("here")), l.Commit(ctx), pmixtest.SetFlag("put", ""), pmixtest.AwaitFlags(ctx, "done"))
	}
	if err := pmixtest.AwaitFlags(ctx, "put"); err != nil {
		return err
	}
	other := Proc{p.Namespace, 1}
	if _, err := l.Get(ctx, other, key, 0); !Is(err, NotFound) {
		return fmt.Errorf("with PMIX_IMMEDIATE: %w", err)
	}
	begin := time.Now()
	v, err := l.Get(ctx, other, key, 30*time.Second)
	fmt.Printf("rank 0: %q after %v %v\n", v.Bytes, time.Since(begin), err)
	return errors.Join(err, pmixtest.SetFlag("done", ""))
}

// A Get with a limit finds values of other nodes.
func TestGet_Immediate_StaysOnNode(t *testing.T) {
	library(t)
	out := pmixtest.Run(t, pmixtest.Server(t, "-n", "2", "-nodes", "2"), "far")
	if !strings.Contains(out, `"here"`) {
		t.Error(out)
	}
	t.Log(out)
}

// fence runs a fence of ranks 1 and 3, and one without rank 2.
func fence(ctx context.Context, l *Library, p Proc) error {
	if p.Rank%2 == 1 {
		if err := l.Fence(ctx, p.Namespace, []uint32{1, 3}, 30*time.Second); err != nil {
			return err
		}
	}
	if p.Rank == 2 {
		time.Sleep(3 * time.Second)
		return nil
	}
	err := l.Fence(ctx, p.Namespace, []uint32{0, 1, 2, 3}, time.Second)
	if err != nil && !Is(err, Timeout) {
		return err
	}
	fmt.Printf("rank %d: without rank 2: %v\n", p.Rank, err)
	return nil
}

// The fence has a limit. 4.2.2 returns a timeout in all members, and 5.0.7 in one of them and
// success in the others.
func TestFence_MembersAreAbsent_Ends(t *testing.T) {
	library(t)
	for name, launcher := range map[string][]string{"server": pmixtest.Server(t, "-n", "4"), "mpirun": pmixtest.Mpirun(t, 4)} {
		t.Run(name, func(t *testing.T) {
			out := pmixtest.Run(t, launcher, "fence")
			if strings.Count(out, "without rank 2: ") != 3 || !strings.Contains(out, "(-24)") {
				t.Error(out)
			}
			t.Log(out)
		})
	}
}

// deaths ends rank 1, and the others wait for the event.
func deaths(ctx context.Context, l *Library, p Proc) error {
	for _, code := range []Status{ProcAborted, LostConnection, ProcKilled} {
		if err := l.Watch(ctx, code); err != nil {
			return err
		}
	}
	all := []uint32{0, 1, 2}
	if err := l.Fence(ctx, p.Namespace, all, 30*time.Second); err != nil {
		return err
	}
	if p.Rank == 1 {
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	for ctx.Err() == nil {
		if e, ok := l.NextEvent(); ok {
			if e.Proc != (Proc{p.Namespace, 1}) {
				return fmt.Errorf("%v has an event %d", e.Proc, e.Code)
			}
			fmt.Printf("rank %d: event %d of rank %d, dropped %d\n", p.Rank, e.Code, e.Proc.Rank, l.DroppedEvents())
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return context.Cause(ctx)
}

func TestWatch_Death_IsAnEvent(t *testing.T) {
	library(t)
	out, _ := pmixtest.RunAny(t, pmixtest.Server(t, "-n", "3"), "deaths")
	for _, want := range []string{"rank 0: event -7 of rank 1", "rank 2: event -7 of rank 1", "rank 0: exit 0", "rank 2: exit 0"} {
		if !strings.Contains(out, want) {
			t.Errorf("want %q in\n%s", want, out)
		}
	}
}

// group lets the odd ranks make two groups.
func group(ctx context.Context, l *Library, p Proc) error {
	if p.Rank%2 == 0 {
		return nil
	}
	for i := range 2 {
		id, err := l.Construct(ctx, fmt.Sprintf("g%d", i), p.Namespace, []uint32{1, 3}, 30*time.Second)
		fmt.Printf("rank %d: group %d has id %d, %v\n", p.Rank, i, id, err)
	}
	return nil
}

func TestConstruct_Groups_DrawIDs(t *testing.T) {
	oldGroups(t)
	out := pmixtest.Run(t, pmixtest.Server(t, "-n", "4"), "group")
	for _, want := range []string{"rank 1: group 0 has id 1000, <nil>", "rank 3: group 1 has id 1001, <nil>"} {
		if !strings.Contains(out, want) {
			t.Errorf("want %q in\n%s", want, out)
		}
	}
}

// oldGroups skips the test if the server has no groups.
func oldGroups(t *testing.T) {
	t.Helper()
	if v, ok := library(t).Version(); !ok || v.Major > 4 {
		t.Skipf("testdata/server.c makes groups as libpmix 4 does; this one is %v", v)
	}
}

// libpmix returns an uninitialized result.
func TestConstruct_Failed_HasNoID(t *testing.T) {
	oldGroups(t)
	for name, launcher := range map[string][]string{"server": pmixtest.Server(t, "-n", "4", "-no-groups"), "mpirun": pmixtest.Mpirun(t, 4)} {
		t.Run(name, func(t *testing.T) {
			if out := pmixtest.Run(t, launcher, "group"); strings.Count(out, "has id 0, PMIx_Group_construct: ") != 4 {
				t.Error(out)
			}
		})
	}
}

func psets(ctx context.Context, l *Library, p Proc) error {
	names, err := l.Psets(ctx)
	members, err2 := l.Pset(ctx, "odd")
	_, err3 := l.Pset(ctx, "no such set")
	fmt.Printf("rank %d: psets %q %v, odd %d %v, other %v\n", p.Rank, names, err, len(members), err2, err3)
	if len(members) == 2 && members[1] != (Proc{p.Namespace, 3}) {
		return fmt.Errorf("members %v", members)
	}
	return nil
}

func TestPset_ReturnsMembers(t *testing.T) {
	library(t)
	out := pmixtest.Run(t, pmixtest.Server(t, "-n", "4", "-pset", "odd"), "psets")
	if strings.Count(out, `psets "odd" <nil>, odd 2 <nil>, other PMIx_Query_info: `) != 4 {
		t.Error(out)
	}
	out = pmixtest.Run(t, pmixtest.Mpirun(t, 1), "psets")
	if !strings.Contains(out, `psets "" PMIx_Query_info: `) {
		t.Error(out)
	}
}

// signals raises a signal when the library has started its thread.
func signals(ctx context.Context, _ *Library, _ Proc) error {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	defer signal.Stop(c)
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-c:
	case <-ctx.Done():
		return errors.New("no signal came")
	}
	masks, err := threadMasks()
	if err != nil {
		return err
	}
	if !slices.Contains(masks, "fffffffe7ffbfeff") && !slices.Contains(masks, "fffffffc7ffbfeff") {
		return fmt.Errorf("no thread has its signals blocked: %v", masks)
	}
	return nil
}

// threadMasks returns the blocked signals of each thread.
func threadMasks() ([]string, error) {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, err
	}
	var masks []string
	for _, task := range tasks {
		text, err := os.ReadFile("/proc/self/task/" + task.Name() + "/status")
		if err != nil {
			continue // The thread has ended.
		}
		_, rest, _ := strings.Cut(string(text), "SigBlk:\t")
		mask, _, _ := strings.Cut(rest, "\n")
		masks = append(masks, mask)
	}
	return masks, nil
}

// Otherwise the library's thread could receive them.
func TestLibrary_Signals_AreUnblocked(t *testing.T) {
	library(t)
	pmixtest.Run(t, pmixtest.Server(t, "-n", "1"), "signals")
}
