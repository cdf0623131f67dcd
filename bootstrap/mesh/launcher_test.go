package mesh

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/bootstraptest"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/needs"
)

// addressBook is a job's address book in memory, and its name service.
type addressBook struct {
	namespace string
	size      int
	// Number of nodes, in cyclic order of the ranks. 0 means one.
	nodes int
	// An entry is invisible for so many lookups.
	hiddenLookups int

	mu           sync.Mutex
	entries      map[framework.Proc][]byte
	lookupCounts map[framework.Proc]int
	names        map[string][]byte
	finds        atomic.Int64
	// Returned by every call.
	launcherErr error
}

func newAddressBook(size int) *addressBook {
	return &addressBook{
		namespace: "meet-" + rand.Text(), size: size,
		entries: map[framework.Proc][]byte{}, lookupCounts: map[framework.Proc]int{}, names: map[string][]byte{},
	}
}

func (b *addressBook) proc(rank int) framework.Proc {
	return framework.Proc{Namespace: b.namespace, Rank: uint32(rank)}
}

func (b *addressBook) world() (all []framework.Proc) {
	for r := range b.size {
		all = append(all, b.proc(r))
	}
	return all
}

// launcher is the Launcher of one process.
type launcher struct {
	*addressBook
	rank int
}

func (l launcher) Identity() bootstrap.Identity {
	nodes := max(l.nodes, 1)
	id := bootstrap.Identity{Proc: l.proc(l.rank), Size: l.size, LocalRank: l.rank / nodes}
	for r := l.rank % nodes; r < l.size; r += nodes {
		id.LocalRanks = append(id.LocalRanks, uint32(r))
	}
	id.LocalSize = len(id.LocalRanks)
	return id
}

func (l launcher) Publish(_ context.Context, entry []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, twice := l.entries[l.proc(l.rank)]; twice {
		return errors.New("published twice")
	}
	l.entries[l.proc(l.rank)] = bytes.Clone(entry)
	return l.launcherErr
}

func (l launcher) Find(_ context.Context, p framework.Proc) ([]byte, bool, error) {
	l.finds.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.entries[p]
	if l.lookupCounts[p]++; ok && l.lookupCounts[p] <= l.hiddenLookups {
		ok = false
	}
	return bytes.Clone(e), ok, l.launcherErr
}

func (l launcher) Abort(context.Context, int, string) error { return nil }
func (l launcher) Close() error                             { return nil }

// namedLauncher is a launcher that also has a name service and process sets.
type namedLauncher struct{ launcher }

func (n namedLauncher) Publish(ctx context.Context, entry []byte) error {
	return n.launcher.Publish(ctx, entry)
}

// Publish of a Launcher differs from that of a Directory.
func (n namedLauncher) Unwrap() any { return directoryOf{n.addressBook} }

type directoryOf struct{ *addressBook }

func (n directoryOf) Publish(_ context.Context, name string, value []byte) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.names[name]; ok {
		return bootstrap.ErrPublished
	}
	n.names[name] = bytes.Clone(value)
	return nil
}

func (n directoryOf) Unpublish(_ context.Context, name string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.names[name]; !ok {
		return bootstrap.ErrNotPublished
	}
	delete(n.names, name)
	return nil
}

func (n directoryOf) Lookup(_ context.Context, name string, wait bool) ([]byte, bool, error) {
	if wait {
		return nil, false, errors.New("asked to wait")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	v, ok := n.names[name]
	return bytes.Clone(v), ok, nil
}

// network is the kind of sockets between the processes of a test.
type network int

const (
	unix network = iota
	// Each process seems to be on a host of its own.
	tcp
)

func (n network) String() string { return [...]string{"unix", "tcp"}[n] }

var hosts atomic.Uint64

// openOn opens the client of a rank.
func openOn(ctx context.Context, n network, l Launcher, env bootstrap.Env) (*client, error) {
	return openClient(ctx, env, l, func(e *entry) error {
		if n == tcp {
			e.hostID = 1<<63 + hosts.Add(1)
		}
		return nil
	})
}

// testJob is the address book of a test with the clients that are open.
type testJob struct {
	*addressBook
	t       testing.TB
	on      network
	env     bootstrap.Env
	clients []*client
}

func newTestJob(t testing.TB, on network, size int) *testJob {
	j := &testJob{addressBook: newAddressBook(size), t: t, on: on, env: bootstrap.Env{Timeout: 20 * time.Second}}
	t.Cleanup(func() {
		for _, c := range j.clients {
			c.Crash()
		}
	})
	return j
}

// open opens a rank.
func (j *testJob) open(rank int) *client {
	j.t.Helper()
	c, err := openOn(j.t.Context(), j.on, launcher{j.addressBook, rank}, j.env)
	if err != nil {
		j.t.Fatal(err)
	}
	j.clients = append(j.clients, c)
	return c
}

// openAll opens all ranks.
func (j *testJob) openAll() []*client {
	j.t.Helper()
	for r := range j.size {
		j.open(r)
	}
	return j.clients
}

// fence runs a fence of the clients, which are all members of the group.
func (j *testJob) fence(tag string, cs ...*client) {
	j.t.Helper()
	var group []framework.Proc
	for _, c := range cs {
		group = append(group, c.id.Proc)
	}
	if err := inAll(cs, func(c *client) error { return c.Fence(j.t.Context(), group, tag) }); err != nil {
		j.t.Fatalf("fence %q: %v", tag, err)
	}
}

// inAll runs f for all clients concurrently.
func inAll(cs []*client, f func(*client) error) error {
	errs := make([]error, len(cs))
	var wg sync.WaitGroup
	for i, c := range cs {
		wg.Go(func() {
			if err := f(c); err != nil {
				errs[i] = fmt.Errorf("rank %d: %w", c.id.Proc.Rank, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// report reports a process dead that may be alive.
func (c *client) report(rank int, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reportFailed(wire.EventBody{Kind: uint8(bootstrap.PeerFailed), Rank: uint32(rank), Nonce: c.peerOf(uint32(rank)).incarnation, Reason: reason}, nil)
}

func TestKitOverUnixSockets(t *testing.T) {
	needs.Time(t)
	bootstraptest.Cases(factory(unix, 0, 1)).Run(t)
}

func TestKitOverTCP(t *testing.T) { bootstraptest.Cases(factory(tcp, 0, 1)).Run(t) }

func TestKitOnTwoNodes(t *testing.T) {
	needs.Time(t)
	bootstraptest.Cases(factory(unix, 0, 2)).Run(t)
}

func TestKitWithDelayedEntries(t *testing.T) {
	needs.Time(t)
	bootstraptest.Cases(factory(unix, 5, 2)).Run(t)
}
