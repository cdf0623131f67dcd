package mpi

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/pml"
)

// CreateGroup creates a communicator for some members, and is collective over these only (MPI_Comm_create_group). A caller outside of g gets
// ErrNoComm at once. Creations that overlap in time need different tags or different communicators. The same tag may be reused after the call.
// Further errors are ErrTag, and ErrGroup for a group with processes that are no members of c.
//
// The first member of g chooses an id and sends it to the others. They wait for no other member, so that a failed one prevents no other from creating
// the communicator.
func (c *Comm) CreateGroup(ctx context.Context, g *Group, tag int) (*Comm, error) {
	ranks, err := c.ranksOf(g)
	if err != nil {
		return nil, err
	}
	if tag < 0 || tag > c.tagMax {
		return nil, c.errTag(tag)
	}
	if tag == c.tagMax { // On the control plane it is that of partitioned communication.
		return nil, fmt.Errorf("%w: %d is not for CreateGroup; use a smaller one", ErrTag, tag)
	}
	if g.Rank() == Undefined {
		return nil, fmt.Errorf("%w: the caller is not in the group", ErrNoComm)
	}
	k := &c.collective
	broken := k.CheckUsable()
	d, err := c.createGroup(ctx, g, ranks, tag, broken)
	switch {
	case err == nil:
		return d, nil
	case broken != nil:
		return nil, broken
	}
	err = k.Fail(fmt.Errorf("create group: %w", ended(ctx, "wait", err)))
	k.Abort(err)
	return nil, err
}

// createGroup implements CreateGroup. cannot is the reason why this member cannot take part. The first member announces it to the others.
func (c *Comm) createGroup(ctx context.Context, g *Group, ranks []int, tag int, cannot error) (*Comm, error) {
	var id cid.Extended
	err := cannot
	if err == nil && hasEnded(ctx) {
		err = context.Cause(ctx)
	}
	switch {
	case errors.Is(err, ErrRevoked): // All others are notified of that.
	case g.Rank() == 0:
		id, err = c.announce(ctx, g, ranks[1:], tag, err)
	case err == nil:
		id, err = c.receiveAnnouncement(ctx, g, ranks[0], tag)
	default:
		c.refuseAnnouncement(ranks[0], tag, g)
	}
	if err != nil {
		return nil, err
	}
	members, group := c.membersOf(id, ranks)
	spec := pml.CommSpec{ID: id, Rank: g.Rank(), Members: members}
	return c.child(&Group{session: c.session.user(), self: c.group.self, members: group, rank: g.Rank()}, spec)
}

// An announcement is the new id, zero if the creation has failed, and a hash of the group. The hash turns a mix-up of tags of two creations into an
// error.
const announceSize = 16 + 8

func announcement(id cid.Extended, g *Group) []byte {
	b := id.Bytes()
	return binary.BigEndian.AppendUint64(b[:], hashGroup(g))
}

func hashGroup(g *Group) uint64 {
	h := fnv.New64a()
	for _, m := range g.members.all() {
		fmt.Fprintf(h, "%q %d ", m.Namespace, m.Rank)
		if m.activation != nil {
			fmt.Fprintf(h, "%d ", m.endpoint)
		}
	}
	return h.Sum64()
}

// announce obtains an id and sends it to these ranks. If there is none, because it cannot be
// made here or otherwise, it sends that, so that they do not wait.
func (c *Comm) announce(ctx context.Context, g *Group, ranks []int, tag int, err error) (id cid.Extended, _ error) {
	if err == nil {
		id, err = c.session.process.draw(ctx)
	}
	msg := announcement(id, g)
	for _, r := range ranks {
		// These sends are not waited for, so that the notification of members does not depend on this member's context. msg is not
		// changed.
		q, sendErr := c.pml.Isend(pml.Buffer{Bytes: msg}, r, tag, pml.Control, pml.Standard)
		if sendErr == nil {
			sendErr = q.Free(q.Generation())
		}
		if sendErr != nil && err == nil {
			err = sendErr
			msg = announcement(cid.Extended{}, g)
			c.refuse(id, g, err) // Some members may have it.
		}
	}
	return id, err
}

// refuse reports that this process is not in a communicator that other members may create.
func (c *Comm) refuse(id cid.Extended, g *Group, why error) {
	c.refuseSpan(cid.Descendants(id), why)
	c.reportBroken(id, g, why)
}

// refuseAnnouncement refuses the id that the group's first member may still announce, because the others would create a communicator with this member. A
// receive stays posted for the announcement until it comes or cannot come any more, so that no later creation matches it.
func (c *Comm) refuseAnnouncement(from, tag int, g *Group) {
	b := make([]byte, announceSize)
	q, err := c.pml.Irecv(pml.Buffer{Bytes: b}, from, tag, pml.Control)
	if err != nil {
		return
	}
	generation := q.Generation()
	done := c.collective.CancelAtClose(q, generation)
	c.session.asyncs.spawn(func(ctx context.Context) {
		st, err := q.Wait(ctx, generation)
		done()
		if err != nil || st.Bytes != announceSize || binary.BigEndian.Uint64(b[16:]) != hashGroup(g) {
			return
		}
		if id := cid.FromBytes([16]byte(b[:16])); id.Base != 0 {
			c.refuse(id, g, fmt.Errorf("%w: its creation has failed here", ErrBroken))
		}
	})
}

// receiveAnnouncement receives the announcement of the group's first member.
func (c *Comm) receiveAnnouncement(ctx context.Context, g *Group, from, tag int) (cid.Extended, error) {
	b := make([]byte, announceSize)
	ctx, stop := c.collective.ContextUntilBroken(ctx)
	defer stop()
	st, err := c.pml.Recv(ctx, pml.Buffer{Bytes: b}, from, tag, pml.Control)
	if err != nil {
		if hasEnded(ctx) {
			c.refuseAnnouncement(from, tag, g)
			err = context.Cause(ctx)
		}
		return cid.Extended{}, err
	}
	first := g.members.at(0)
	if st.Bytes != announceSize {
		return cid.Extended{}, badMessage(first.Proc, fmt.Errorf("create group: invalid announcement of %d bytes, want %d", st.Bytes, announceSize))
	}
	if binary.BigEndian.Uint64(b[16:]) != hashGroup(g) {
		return cid.Extended{}, fmt.Errorf("%w: %s creates another group with tag %d; use another tag", ErrGroup, first, tag)
	}
	id := cid.FromBytes([16]byte(b[:16]))
	if id.Base == 0 {
		return cid.Extended{}, fmt.Errorf("%w: %s got no communicator id; see the error of that rank", ErrBroken, first)
	}
	return id, nil
}

// bases provides ids that a single process may assign to communicators. They are derived from base ids of the bootstrap, each of which is sufficient
// for many.
type bases struct {
	// Held by the goroutine that uses idDeriver.
	drawToken chan struct{}
	idDeriver cid.Deriver
}

func (b *bases) init() { b.drawToken = make(chan struct{}, 1) }

// draw returns an id that no communicator of the job has, nor will get by
// another way.
func (e *process) draw(ctx context.Context) (cid.Extended, error) {
	ctx = background(ctx)
	select {
	case e.bases.drawToken <- struct{}{}:
	case <-ctx.Done():
		return cid.Extended{}, context.Cause(ctx)
	}
	defer func() { <-e.bases.drawToken }()
	if e.bases.idDeriver.Remaining() == 0 {
		made, err := e.Construct(ctx, []Proc{e.identity.Proc}, "\x00base", nil)
		if err != nil {
			return cid.Extended{}, err
		}
		e.bases.idDeriver.Rebase(made.ContextID)
	}
	ids, err := e.bases.idDeriver.Next(1)
	if err != nil {
		return cid.Extended{}, err
	}
	return ids[0], nil
}
