package mpi

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// Special values of ranks, tags and colours (MPI-4.1 section 3.2.4 and others).
const (
	AnySource = pml.AnySource // receive and probe: from any member
	AnyTag    = pml.AnyTag    // receive and probe: with any tag
	ProcNull  = pml.ProcNull  // no process: the operation completes at once, and moves nothing
	Undefined = -32766        // no rank, no colour, no index
)

// CommID names a communicator: the same 16 bytes in all members, and in no
// other communicator of the job.
type CommID [16]byte

// String shows the id in hexadecimal.
func (id CommID) String() string { return hex.EncodeToString(id[:]) }

// Comm is a communicator: a group with a context of its own, so that messages
// on one never meet those of another (MPI-4.1 chapter 7).
type Comm struct {
	// What every message needs comes first, in one cache line.
	pml    pml.Comm
	size   int
	tagMax int
	closed atomic.Bool

	rank    int
	session *Session
	group   *Group
	module  module
	values  *framework.Values
	spec    pml.CommSpec

	collective collective

	mu   sync.Mutex
	name string
}

// newComm makes a communicator of the session, whose count holds it already. On
// an error spec.Local is free again.
func newComm(s *Session, g *Group, m module, spec pml.CommSpec, values *framework.Values) (*Comm, error) {
	p, err := m.AddComm(spec)
	if err != nil {
		m.CIDs().Close(spec.Local)
		return nil, err
	}
	c := &Comm{
		pml: p, size: g.Size(), tagMax: m.TagMax(),
		rank: spec.Rank, session: s, group: g, module: m, values: values, spec: spec,
	}
	c.collective.init(c)
	return c, nil
}

// Rank returns the caller's rank: 0 to Size()-1.
func (c *Comm) Rank() int { return c.rank }

// Size returns the number of members.
func (c *Comm) Size() int { return c.size }

// Group returns the group of the members.
func (c *Comm) Group() *Group { return c.group }

// ID returns the communicator's name in the job.
func (c *Comm) ID() CommID { return c.spec.ID.Bytes() }

// TagMax returns the largest tag that a message may have.
func (c *Comm) TagMax() int { return c.tagMax }

// Name returns what SetName stored here; empty at first.
func (c *Comm) Name() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.name
}

// SetName names the communicator for people who debug. It is local.
func (c *Comm) SetName(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.name = name
}

// Compare returns Identical for the same communicator, Congruent for another
// one with the same group, Similar when only the order of the members differs,
// and otherwise Unequal.
func (c *Comm) Compare(other *Comm) Comparison {
	if c.spec.ID == other.spec.ID {
		return Identical
	}
	if r := c.group.Compare(other.group); r != Identical {
		return r
	}
	return Congruent
}

// Close gives the communicator up (MPI_Comm_free). Each member calls it, in its
// own time. It returns at once: operations that are pending still complete, and
// messages that nobody received are dropped. A second Close, and any other use
// after it, is ErrClosed.
func (c *Comm) Close() error {
	if c.closed.Swap(true) {
		return c.errClosed()
	}
	c.pml.Close()
	c.session.doneComm()
	return nil
}

func (c *Comm) errClosed() error { return fmt.Errorf("%w: the communicator is closed", ErrClosed) }

// Transport is how messages to one member travel.
type Transport struct {
	PML       string // the point-to-point layer: "ob1"
	Component string // the transport below it: "shm"; empty when none reaches the member
	Device    string // what carries the bytes: "/dev/shm/..."
	Provider  string // below an MTL: the fabric's provider
}

// Transport says how messages to the member travel, or would if none has been
// sent yet. ErrRank for a rank out of range.
func (c *Comm) Transport(rank int) (Transport, error) {
	if c.closed.Load() {
		return Transport{}, c.errClosed()
	}
	if rank < 0 || rank >= c.size {
		return Transport{}, c.errRank(rank)
	}
	r := c.module.Route(c.spec.Group[rank])
	return Transport{PML: c.module.name, Component: r.Transport, Device: r.Device, Provider: r.Provider}, nil
}

// Dup makes a communicator with the same members and another context
// (MPI_Comm_dup). It is collective, but sends nothing and waits for nobody: a
// member may send on the new one before others have called Dup. (Once in 65535
// creations from one communicator the members meet to draw new ids.)
func (c *Comm) Dup(ctx context.Context) (*Comm, error) {
	if err := c.collective.enter(ctx); err != nil {
		return nil, err
	}
	d, err := c.dup(ctx)
	return d, c.collective.leave(ctx, "dup", err)
}

func (c *Comm) dup(ctx context.Context) (*Comm, error) {
	ids, err := c.derive(ctx, 1)
	if err != nil {
		return nil, err
	}
	local, err := c.module.CIDs().Reserve()
	if err != nil {
		return nil, err
	}
	return c.child(c.group, pml.CommSpec{ID: ids[0], Local: local, Group: c.spec.Group, Rank: c.rank})
}

// child makes a communicator below c.
func (c *Comm) child(g *Group, spec pml.CommSpec) (*Comm, error) {
	if err := c.session.addComm(); err != nil {
		c.module.CIDs().Close(spec.Local)
		return nil, err
	}
	d, err := newComm(c.session, g, c.module, spec, c.values)
	if err != nil {
		c.session.doneComm()
		return nil, err
	}
	return d, nil
}

// derive returns the ids of the next n children, the same in all members. When
// the base has no more, all members draw a new one.
func (c *Comm) derive(ctx context.Context, n int) ([]cid.Extended, error) {
	d := &c.collective.children
	ids := make([]cid.Extended, 0, n)
	for {
		some, err := d.Next(min(n-len(ids), d.Left()))
		if err != nil {
			return nil, err
		}
		ids = append(ids, some...)
		if len(ids) == n {
			return ids, nil
		}
		// The tag begins with a byte that keeps it from a user's.
		made, err := c.session.engine.construct(ctx, c.group.members, "\x00children of "+c.spec.ID.String(), nil)
		if err != nil {
			return nil, err
		}
		d.Rebase(made.ContextID)
	}
}

// collective is the state of a communicator's collective operations. One is in
// progress at a time.
type collective struct {
	busy     atomic.Bool
	broken   error // why no further one can work; guarded by busy
	children cid.Deriver
	peers    peers
	ops      collOps
}

func (k *collective) init(c *Comm) {
	k.children = cid.NewDeriver(c.spec.ID)
	k.peers = peers{c: c, plane: pml.Collective}
}

// comm is the communicator that k is part of.
func (k *collective) comm() *Comm { return k.peers.c }

// enter begins a collective. It must be followed by leave, unless it failed.
func (k *collective) enter(ctx context.Context) error {
	c := k.comm()
	if c.closed.Load() {
		return c.errClosed()
	}
	if !k.busy.CompareAndSwap(false, true) {
		return fmt.Errorf("%w: another goroutine is in a collective operation of this communicator; use one communicator for each (Dup)", ErrPending)
	}
	err := k.broken
	if err == nil && ctx != nil && ctx.Err() != nil {
		err = k.fail(ended(ctx, "collective", context.Cause(ctx)))
	} else if err != nil {
		err = fmt.Errorf("%w: an earlier one failed: %w", ErrBroken, err)
	}
	if err != nil {
		k.busy.Store(false)
	}
	return err
}

// leave ends a collective with its error. An error means that members don't
// agree any more on what has happened, so that further ones are refused.
func (k *collective) leave(ctx context.Context, op string, err error) error {
	if err != nil && !errors.Is(err, ErrNoComm) {
		err = k.fail(ended(ctx, op, err))
	}
	k.busy.Store(false)
	return err
}

func (k *collective) fail(err error) error {
	k.broken = err
	return err
}
