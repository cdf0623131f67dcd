package mesh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
)

// leavingLauncher is the launcher of a process that leaves it for good with its first client.
type leavingLauncher struct {
	launcher
	mu    sync.Mutex
	left  bool
	found map[framework.Proc][]byte
}

func (l *leavingLauncher) Find(ctx context.Context, p framework.Proc) ([]byte, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b, ok := l.found[p]; ok {
		return b, true, nil
	}
	if l.left {
		return nil, false, ErrLauncherLeft
	}
	b, ok, err := l.launcher.Find(ctx, p)
	if ok {
		l.found[p] = b
	}
	return b, ok, err
}

func (l *leavingLauncher) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left = true
	return nil
}

// leavingJob is a job of processes with a leavingLauncher.
type leavingJob struct {
	*testJob
	launchers []*leavingLauncher
}

func newLeavingJob(t *testing.T, on network, size int) *leavingJob {
	j := &leavingJob{testJob: newTestJob(t, on, size)}
	for rank := range size {
		j.launchers = append(j.launchers, &leavingLauncher{launcher: launcher{j.addressBook, rank}, found: map[framework.Proc][]byte{}})
	}
	return j
}

func (j *leavingJob) reopen(rank int) *client {
	j.t.Helper()
	c, err := openOn(j.t.Context(), j.on, j.launchers[rank], j.env)
	if err != nil {
		j.t.Fatal(err)
	}
	j.clients = append(j.clients, c)
	return c
}

// openAndClose opens and closes a client of each rank, one after the other.
func (j *leavingJob) openAndClose(ranks ...int) {
	j.t.Helper()
	for _, rank := range ranks {
		if err := j.reopen(rank).Close(); err != nil {
			j.t.Fatal(err)
		}
	}
}

// constructAndClose constructs a group of ranks with new clients, and closes them.
func (j *leavingJob) constructAndClose(ranks ...int) {
	j.t.Helper()
	var cs []*client
	var group []framework.Proc
	for _, rank := range ranks {
		cs, group = append(cs, j.reopen(rank)), append(group, j.proc(rank))
	}
	if err := inAll(cs, func(c *client) error {
		made, err := c.Construct(j.t.Context(), group, "together", fmt.Append(nil, c.id.Proc.Rank))
		for i, p := range made.Payloads {
			if want := fmt.Append(nil, group[i].Rank); !bytes.Equal(p, want) {
				err = errors.Join(err, fmt.Errorf("payload %d is %q, want %q", i, p, want))
			}
		}
		return err
	}); err != nil {
		j.t.Fatalf("construct of %v: %v", ranks, err)
	}
	if err := inAll(cs, (*client).Close); err != nil {
		j.t.Fatal(err)
	}
}

// Of any two processes the one that closed last has the other's entry, whichever of them is the
// coordinator.
func TestReopen_ProcessesThatLeftInAnyOrder_Connect(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {2, 0, 1}, {1, 2}, {2}, {0}} {
			t.Run(fmt.Sprint(order), func(t *testing.T) {
				j := newLeavingJob(t, on, 3)
				j.openAndClose(order...)
				j.constructAndClose(0, 1, 2)
				j.constructAndClose(2, 1)
			})
		}
	})
}

func TestReopen_GroupsAfterOtherGroups_Connect(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		j := newLeavingJob(t, on, 4)
		j.nodes = 2
		j.constructAndClose(1, 3)
		j.constructAndClose(3, 0)
		j.constructAndClose(2, 1)
		j.openAndClose(3, 2)
		j.constructAndClose(0, 1, 2, 3)
	})
}

// A construct gives every member the entries of all others.
func TestClose_AfterAConstructOfAll_SkipsLookups(t *testing.T) {
	j := newLeavingJob(t, tcp, 8)
	var cs []*client
	for rank := range j.size {
		cs = append(cs, j.reopen(rank))
	}
	if err := inAll(cs, func(c *client) error {
		_, err := c.Construct(t.Context(), j.world(), "all", nil)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, c := range cs {
		c.mu.Lock()
		unknown := c.ranksWithoutEntry()
		c.mu.Unlock()
		if len(unknown) > 0 {
			t.Errorf("rank %d does not know %v", c.id.Proc.Rank, unknown)
		}
	}
}

// stuckLauncher answers no lookup.
type stuckLauncher struct {
	launcher
	finds *atomic.Int32
}

func (s stuckLauncher) Find(ctx context.Context, _ framework.Proc) ([]byte, bool, error) {
	s.finds.Add(1)
	<-ctx.Done()
	return nil, false, context.Cause(ctx)
}

func TestClose_LauncherDoesNotAnswer_EndsAtItsLimit(t *testing.T) {
	j := newTestJob(t, tcp, 100)
	var finds atomic.Int32
	c, err := openOn(t.Context(), tcp, stuckLauncher{launcher{j.addressBook, 0}, &finds}, j.env)
	if err != nil {
		t.Fatal(err)
	}
	j.clients = append(j.clients, c)
	c.timeouts.lookup = time.Millisecond
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if finds.Load() == 0 {
		t.Error("nothing was looked up")
	}
}

// Processes beyond the slots of their node wait, and skip the lookups at the limit.
func TestClose_SlotsOfTheNodeAreTaken_SkipsLookups(t *testing.T) {
	j := newLeavingJob(t, unix, 4*nodeLookupSlots)
	j.nodes = 2
	c, second := j.reopen(0), j.reopen(2)
	for range nodeLookupSlots {
		slot := second.acquireLookupSlot(t.Context())
		if slot == nil {
			t.Fatal("no slot is free")
		}
		defer slot.Close()
	}
	before := j.finds.Load()
	c.timeouts.lookup = time.Millisecond
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if n := j.finds.Load() - before; n > 0 {
		t.Errorf("%d lookups", n)
	}
	if other := j.reopen(1); other.listeners.node != nil {
		slot := other.acquireLookupSlot(t.Context())
		if slot == nil {
			t.Fatal("the slots of another node are taken too")
		}
		slot.Close()
	}
}

func TestConnectAbsent_ManyAreAbsent_DialsEach(t *testing.T) {
	j := newTestJob(t, unix, 10*maxAbsentRanks)
	c := j.open(0)
	var absent []uint32
	for rank := range uint32(10*maxAbsentRanks) - 1 {
		absent = append(absent, rank+1)
	}
	seen := map[uint32]bool{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for range 10 {
		round := c.absentees.nextRound(absent)
		if len(round) != maxAbsentRanks {
			t.Fatalf("a round of %d", len(round))
		}
		for _, rank := range round {
			seen[rank] = true
		}
	}
	if len(seen) != len(absent) {
		t.Errorf("%d of %d members are in no round", len(absent)-len(seen), len(absent))
	}
}

func TestConstruct_PayloadWithoutEntry_IsAnError(t *testing.T) {
	j := newTestJob(t, unix, 2)
	c := j.open(0)
	whole := c.prependEntry([]byte("payload"))
	for what, b := range map[string][]byte{
		"nothing": nil, "half a length": whole[:1], "a length alone": whole[:2], "half an entry": whole[:20],
		"an empty entry": {0, 0}, "garbage": bytes.Repeat([]byte{0xff}, 100),
	} {
		err := c.extractEntries("group construct", j.world(), [][]byte{bytes.Clone(whole), b})
		if !errors.Is(err, framework.ErrTransport) {
			t.Errorf("%s: %v", what, err)
		}
	}
	payloads := [][]byte{whole, c.prependEntry(make([]byte, bootstrap.MaxPayload))}
	if err := c.extractEntries("group construct", j.world(), payloads); err != nil || string(payloads[0]) != "payload" || len(payloads[1]) != bootstrap.MaxPayload {
		t.Errorf("%q, %d bytes, %v", payloads[0], len(payloads[1]), err)
	}
}
