package mesh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/bootstraptest"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/needs"
)

// memoryExchange is the Exchange of a job in memory.
type memoryExchange struct {
	requiresAll bool
	// Closed with the job.
	jobEnded chan struct{}

	mu sync.Mutex
	// Changes the stored values.
	tamper        func([]byte) []byte
	contributions map[string][]byte
	rounds        map[string]*memoryBarrier
}

// memoryBarrier is a barrier that some processes have entered.
type memoryBarrier struct {
	entered  int
	complete chan struct{}
}

// exchangeLauncher is a launcher with a memoryExchange.
type exchangeLauncher struct {
	launcher
	memory *memoryExchange
}

func (x exchangeLauncher) RequiresAllProcesses() bool { return x.memory.requiresAll }

func (x exchangeLauncher) Store(_ context.Context, key string, value []byte) error {
	if len(key) > MaxKey || len(value) > MaxContribution {
		return fmt.Errorf("a key of %d bytes, a part of %d", len(key), len(value))
	}
	x.memory.mu.Lock()
	defer x.memory.mu.Unlock()
	if value = bytes.Clone(value); x.memory.tamper != nil {
		value = x.memory.tamper(value)
	}
	x.memory.contributions[x.proc(x.rank).String()+key] = value
	return nil
}

func (x exchangeLauncher) Fetch(_ context.Context, p framework.Proc, key string) ([]byte, bool, error) {
	x.memory.mu.Lock()
	defer x.memory.mu.Unlock()
	v, ok := x.memory.contributions[p.String()+key]
	return bytes.Clone(v), ok, nil
}

func (x exchangeLauncher) Barrier(group []framework.Proc, limit time.Duration) error {
	key := fmt.Sprint(group)
	x.memory.mu.Lock()
	one := x.memory.rounds[key]
	if one == nil {
		one = &memoryBarrier{complete: make(chan struct{})}
		x.memory.rounds[key] = one
	}
	if one.entered++; one.entered == len(group) {
		delete(x.memory.rounds, key)
		close(one.complete)
	}
	x.memory.mu.Unlock()
	select {
	case <-one.complete:
		return nil
	case <-x.memory.jobEnded:
		return framework.ErrClosed
	case <-time.After(limit):
	}
	x.memory.mu.Lock()
	defer x.memory.mu.Unlock()
	if x.memory.rounds[key] != one {
		return nil
	}
	if one.entered--; one.entered == 0 {
		delete(x.memory.rounds, key)
	}
	return framework.ErrTimeout
}

// openExchangeJob opens the clients of a job with an Exchange.
func openExchangeJob(ctx context.Context, everyone bool, size int, timeout time.Duration) (*bootstraptest.Job, []*client, error) {
	b, h := newAddressBook(size), &memoryExchange{requiresAll: everyone, jobEnded: make(chan struct{}), contributions: map[string][]byte{}, rounds: map[string]*memoryBarrier{}}
	var cs []*client
	job := &bootstraptest.Job{
		Kill: func(rank int) error { return cs[rank].Crash() },
		Close: func() error {
			var errs []error
			for _, c := range cs {
				if err := c.Close(); !errors.Is(err, framework.ErrClosed) {
					errs = append(errs, err)
				}
				c.Crash()
			}
			close(h.jobEnded)
			return errors.Join(errs...)
		},
	}
	for r := range size {
		c, err := openOn(ctx, unix, exchangeLauncher{launcher{b, r}, h}, bootstrap.Env{Timeout: timeout})
		if err != nil {
			return nil, nil, errors.Join(err, job.Close())
		}
		cs = append(cs, c)
		job.Clients = append(job.Clients, withOptionalInterfaces(c))
	}
	return job, cs, nil
}

func TestKitOverAnExchange(t *testing.T) {
	needs.Time(t)
	for name, everyone := range map[string]bool{"groups": false, "all": true} {
		lacking := bootstraptest.Withdrawal | bootstraptest.Overlap
		if everyone {
			lacking |= bootstraptest.Subsets
		}
		t.Run(name, bootstraptest.Cases(bootstraptest.Without(lacking, func(ctx context.Context, want bootstraptest.Want) (*bootstraptest.Job, error) {
			if len(want.Psets) > 0 {
				return nil, fmt.Errorf("this launcher has no process sets: %w", bootstraptest.ErrSkip)
			}
			job, _, err := openExchangeJob(ctx, everyone, want.Size, want.Timeout)
			return job, err
		})).Run)
	}
}

// newExchangeJob is openExchangeJob for a test.
func newExchangeJob(t *testing.T, everyone bool, size int, timeout time.Duration) (*bootstraptest.Job, []*client) {
	t.Helper()
	job, cs, err := openExchangeJob(t.Context(), everyone, size, timeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := job.Close(); err != nil {
			t.Error(err)
		}
	})
	return job, cs
}

func TestExchange_ConstructsInDifferentOrder_AreErrUnsupported(t *testing.T) {
	for _, all := range []bool{false, true} {
		_, cs := newExchangeJob(t, all, 2, time.Minute)
		world := allProcs(cs[0].id)
		err := inAll(cs, func(c *client) error {
			_, err := c.Construct(t.Context(), world, fmt.Sprint("tag of ", c.id.Proc.Rank), nil)
			if !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "in the same order") {
				return fmt.Errorf("another one's construct: %v", err)
			}
			_, err = c.Construct(t.Context(), world, "the same", nil) // Both members have completed the first one.
			return err
		})
		if err != nil {
			t.Error(all, err)
		}
	}
}

func TestExchange_Bystanders_AreAwaited(t *testing.T) {
	job, cs := newExchangeJob(t, true, 4, 2*time.Second)
	pair := []framework.Proc{cs[1].id.Proc, cs[3].id.Proc}
	standBy := func(c *client) error {
		b, ok := framework.As[bootstrap.Bystander](job.Clients[c.id.Proc.Rank])
		if !ok {
			return errors.New("it is not a bystander")
		}
		return b.StandBy(t.Context(), pair, "pair")
	}
	if err := inAll(cs, func(c *client) error {
		if c.id.Proc.Rank%2 == 0 {
			return standBy(c)
		}
		if err := standBy(c); !errors.Is(err, framework.ErrGroup) {
			return fmt.Errorf("a member stands by: %v", err)
		}
		made, err := c.Construct(t.Context(), pair, "pair", []byte{byte(c.id.Proc.Rank)})
		if err == nil && (len(made.Payloads) != 2 || made.Payloads[1][0] != 3) {
			err = fmt.Errorf("%+v", made)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	alone, _ := framework.As[bootstrap.Bystander](job.Clients[0]) // A group of one process.
	if err := alone.StandBy(t.Context(), pair[:1], "one"); err != nil {
		t.Error(err)
	}
	if err := inAll(cs[1:], func(c *client) error { // All but rank 0.
		var err error
		if c.id.Proc.Rank == 2 {
			err = standBy(c)
		} else {
			_, err = c.Construct(t.Context(), pair, "pair", nil)
		}
		if m, ok := errors.AsType[*framework.MissingError](err); !ok || len(m.Missing) != 1 || m.Missing[0] != cs[0].id.Proc {
			return fmt.Errorf("want rank 0 missing: %w", err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// A withdrawn construct counts as entered, so the other member completes it.
func TestExchange_WithdrawnConstruct_DoesNotMixWithNext(t *testing.T) {
	for _, all := range []bool{false, true} {
		_, cs := newExchangeJob(t, all, 2, time.Minute)
		world := allProcs(cs[0].id)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		if _, err := cs[0].Construct(ctx, world, "t", []byte("old")); !errors.Is(err, context.Canceled) {
			t.Errorf("%v: given up: %v", all, err)
		}
		if made, err := cs[1].Construct(t.Context(), world, "t", nil); err != nil || string(made.Payloads[0]) != "old" {
			t.Errorf("%v: with one that was given up: %q, %v", all, made.Payloads, err)
		}
		if err := inAll(cs, func(c *client) error {
			made, err := c.Construct(t.Context(), world, "t", []byte("new"))
			if err == nil && (string(made.Payloads[0]) != "new" || string(made.Payloads[1]) != "new") {
				err = fmt.Errorf("%q", made.Payloads)
			}
			return err
		}); err != nil {
			t.Error(all, err)
		}
	}
}

func TestExchange_DeadlineOfCaller_IsItsCause(t *testing.T) {
	_, cs := newExchangeJob(t, false, 2, time.Minute)
	world := allProcs(cs[0].id)
	mine := errors.New("mine")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, mine)
	defer cancel()
	if err := cs[0].Fence(ctx, world, "t"); !errors.Is(err, mine) {
		t.Error(err)
	}
}

func TestExchange_InvalidContribution_IsAnError(t *testing.T) {
	_, cs := newExchangeJob(t, false, 2, time.Minute)
	world := allProcs(cs[0].id)
	h := cs[0].exchange.(exchangeLauncher).memory
	for what, tamper := range map[string]func(p contribution) []byte{
		"empty":           func(contribution) []byte { return nil },
		"cut":             func(p contribution) []byte { b := wire.EncodeBody(p); return b[:len(b)-1] },
		"with more":       func(p contribution) []byte { return append(wire.EncodeBody(p), 0) },
		"without an id":   func(p contribution) []byte { p.ContextID = 0; return wire.EncodeBody(p) },
		"of another call": func(p contribution) []byte { p.CallDigest[0]++; return wire.EncodeBody(p) },
	} {
		h.mu.Lock()
		h.tamper = func(b []byte) []byte {
			p, err := wire.Decode[contribution](b)
			if err != nil || p.ContextID == 0 { // The coordinator's only.
				return b
			}
			return tamper(p)
		}
		h.mu.Unlock()
		inAll(cs, func(c *client) error {
			_, err := c.Construct(t.Context(), world, what, []byte("x"))
			if leads := c == cs[0]; leads && err != nil {
				t.Errorf("%s: the coordinator needs only the other member's contribution: %v", what, err)
			} else if !leads && !errors.Is(err, framework.ErrTransport) && !errors.Is(err, framework.ErrUnsupported) {
				t.Errorf("%s: %v", what, err)
			}
			return nil
		})
	}
}
