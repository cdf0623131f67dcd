package mesh

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrympi/ferry/framework"
)

// randomJob is a job whose processes enter random joins, withdraw, reopen, put and get, and finally
// die.
type randomJob struct {
	*testJob
	procs []*randomProc
	// Maps context ids to tags.
	ids sync.Map

	withdrawn, reopened atomic.Int64
}

// randomProc is one process. Its calls hold mu as readers, so that it closes between them only,
// because the result of a call that Close ends is unknown.
type randomProc struct {
	mu     sync.RWMutex
	c      *client
	killed atomic.Bool
	puts   atomic.Uint64
}

// randomJoin is one fence or construct of a group.
type randomJoin struct {
	tag       string
	group     []framework.Proc
	construct bool
}

func (j *randomJob) newJoin(rng *rand.Rand, n int, tag string) randomJoin {
	m := randomJoin{tag: tag, construct: rng.IntN(2) == 0}
	for _, r := range rng.Perm(n)[:1+rng.IntN(n)] {
		m.group = append(m.group, j.proc(r))
	}
	return m
}

// enterOnce makes one call of a member, and checks its result.
func (j *randomJob) enterOnce(ctx context.Context, m randomJoin, rank int) error {
	p := j.procs[rank]
	p.mu.RLock()
	defer p.mu.RUnlock()
	if !m.construct {
		return p.c.Fence(ctx, m.group, m.tag)
	}
	made, err := p.c.Construct(ctx, m.group, m.tag, []byte(fmt.Sprint(m.tag, rank)))
	if err != nil {
		return err
	}
	if was, _ := j.ids.LoadOrStore(made.ContextID, m.tag); was != m.tag {
		return fmt.Errorf("id %x of %q is that of %q", made.ContextID, m.tag, was)
	}
	for i, g := range m.group {
		if want := fmt.Sprint(m.tag, g.Rank); string(made.Payloads[i]) != want {
			return fmt.Errorf("payload %d is %q, want %q", i, made.Payloads[i], want)
		}
	}
	return nil
}

var errDisconnected = errors.New("the test has given it up")

// enter repeats the call of a member, with random withdrawals, until it succeeds.
func (j *randomJob) enter(rng *rand.Rand, m randomJoin, rank int) error {
	for {
		ctx, cancel := context.WithCancelCause(context.Background())
		if rng.IntN(3) == 0 {
			time.AfterFunc(time.Duration(rng.IntN(3000))*time.Microsecond, func() { cancel(errDisconnected) })
		}
		err := j.enterOnce(ctx, m, rank)
		cancel(nil)
		if !errors.Is(err, errDisconnected) {
			return err
		}
		j.withdrawn.Add(1)
		if rng.IntN(2) == 0 {
			if err := j.reopen(rank); err != nil {
				return err
			}
		}
	}
}

// reopen closes and reopens a process's client, unless it has calls.
func (j *randomJob) reopen(rank int) error {
	p := j.procs[rank]
	if !p.mu.TryLock() {
		return nil
	}
	defer p.mu.Unlock()
	j.reopened.Add(1)
	if err := p.c.Close(); err != nil {
		return err
	}
	c, err := openOn(context.Background(), j.on, launcher{j.addressBook, rank}, j.env)
	if err == nil {
		p.c = c
	}
	return err
}

// put stores a new value, and returns its number.
func (j *randomJob) put(rank int) (uint64, error) {
	p := j.procs[rank]
	p.mu.RLock()
	defer p.mu.RUnlock()
	n := p.puts.Add(1)
	return n, p.c.Put(context.Background(), fmt.Sprint("k", n), binary.BigEndian.AppendUint64(nil, n))
}

// get fails unless rank receives value n of another process.
func (j *randomJob) get(rank, of int, n uint64) error {
	p := j.procs[rank]
	p.mu.RLock()
	defer p.mu.RUnlock()
	v, err := p.c.Get(context.Background(), j.proc(of), fmt.Sprint("k", n))
	if err == nil && (len(v) != 8 || binary.BigEndian.Uint64(v) != n) {
		err = fmt.Errorf("value %d of %d is %x", n, of, v)
	}
	return err
}

// round runs several joins of all processes concurrently.
func (j *randomJob) round(t *testing.T, seed uint64, round, n int) {
	rng := rand.New(rand.NewPCG(seed, uint64(round)))
	var wg sync.WaitGroup
	for k := range 2 + rng.IntN(5) {
		m := j.newJoin(rng, n, fmt.Sprintf("m%d.%d", round, k%4)) // Some have the same tag.
		if k >= 4 {
			m.tag += "'"
		}
		puts := make([]uint64, len(m.group))
		var met sync.WaitGroup
		met.Add(len(m.group))
		for i, g := range m.group {
			mine, rank := rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64())), int(g.Rank)
			wg.Go(func() {
				var err error
				if puts[i], err = j.put(rank); err == nil {
					err = j.enter(mine, m, rank)
				}
				met.Done()
				if err != nil {
					t.Errorf("round %d: rank %d in %q of %v: %v", round, rank, m.tag, m.group, err)
					return
				}
				if mine.IntN(6) == 0 {
					if err := j.reopen(rank); err != nil {
						t.Errorf("round %d: rank %d opens again: %v", round, rank, err)
					}
				}
				other := mine.IntN(len(m.group))
				if mine.IntN(3) > 0 {
					return
				}
				met.Wait() // It reads puts.
				if err := j.get(rank, int(m.group[other].Rank), puts[other]); err != nil {
					t.Errorf("round %d: rank %d gets of %v: %v", round, rank, m.group[other], err)
				}
			})
		}
	}
	wg.Wait()
}

// killSome kills one process after another while the others enter joins with and without it.
func (j *randomJob) killSome(t *testing.T, seed uint64, n int) {
	for _, victim := range rand.New(rand.NewPCG(seed, 99)).Perm(n)[:n/2] {
		rng := rand.New(rand.NewPCG(seed, uint64(1000+victim)))
		var live []framework.Proc
		for r, p := range j.procs {
			if !p.killed.Load() {
				live = append(live, j.proc(r))
			}
		}
		rng.Shuffle(len(live), func(a, b int) { live[a], live[b] = live[b], live[a] })
		without := slices.DeleteFunc(slices.Clone(live), func(p framework.Proc) bool { return p == j.proc(victim) })
		with := randomJoin{tag: fmt.Sprint("with", victim), group: live, construct: true}
		but := randomJoin{tag: fmt.Sprint("without", victim), group: without, construct: true}
		last := live[rng.IntN(len(live))] // A process that the others may not have connected to.
		var wg sync.WaitGroup
		for _, g := range live {
			rank := int(g.Rank)
			wg.Go(func() {
				if rank == victim {
					time.Sleep(time.Duration(rng.IntN(2000)) * time.Microsecond)
					j.procs[rank].killed.Store(true)
					j.procs[rank].c.Crash()
				}
			})
			wg.Go(func() {
				if g == last {
					return
				}
				err := j.enterOnce(context.Background(), with, rank)
				var miss *framework.MissingError
				switch {
				case rank == victim || err == nil:
				case errors.As(err, &miss) && slices.Equal(miss.Failed, []framework.Proc{j.proc(victim)}) && len(miss.Missing) == 0:
				default:
					t.Errorf("rank %d with %d, which dies, of %v: %v", rank, victim, live, err)
				}
			})
			wg.Go(func() {
				if rank == victim {
					return
				}
				if err := j.enterOnce(context.Background(), but, rank); err != nil {
					t.Errorf("rank %d without %d, of %v: %v", rank, victim, without, err)
				}
			})
		}
		wg.Wait()
	}
}

// checkNothingPending fails the test if completed calls have left state behind.
func (j *randomJob) checkNothingPending(t *testing.T) {
	for r, p := range j.procs {
		if p.killed.Load() {
			continue
		}
		c := p.c
		eventually(t, fmt.Sprintf("nothing is left at rank %d", r), func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			left := len(c.joins.Absent()) + len(c.selfLink.pendingRequests) + len(c.relays)
			left += len(c.pendingCalls.Select(func(*call) bool { return true }))
			for l := range c.links {
				left += len(l.pendingRequests)
			}
			for _, p := range c.peers {
				left += len(p.waitingCalls) + len(p.uncertainCalls)
			}
			return left == 0
		})
	}
}

func TestRandomJoins(t *testing.T) {
	const size = 7
	for _, on := range []network{unix, tcp} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprint(on, " seed ", seed), func(t *testing.T) {
				j := &randomJob{testJob: newTestJob(t, on, size)}
				j.nodes = 1 + 2*int(seed%3)
				for range size {
					j.procs = append(j.procs, &randomProc{})
				}
				for r, p := range j.procs {
					p.c = j.open(r)
				}
				t.Cleanup(func() {
					for _, p := range j.procs {
						p.c.Crash()
					}
				})
				for round := range 12 {
					j.round(t, seed, round, size)
					if t.Failed() {
						return
					}
				}
				j.checkNothingPending(t)
				j.killSome(t, seed, size)
				j.checkNothingPending(t)
				t.Logf("%d calls withdrawn, %d clients opened again", j.withdrawn.Load(), j.reopened.Load())
			})
		}
	}
}
