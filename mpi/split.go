package mpi

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/run"
	"github.com/ferrympi/ferry/internal/mem"
	"github.com/ferrympi/ferry/pml"
)

// Split divides the communicator by color (MPI_Comm_split). Members with the same color form a communicator, ordered by key, and by the rank in c for
// equal keys. It is collective. A member that passes Undefined takes part, and gets ErrNoComm. Another negative color is an error in that member, and
// counts as Undefined for the others.
//
// It costs one allgather of colors and keys. The ids are derived from the colors.
func (c *Comm) Split(ctx context.Context, color, key int) (*Comm, error) {
	if color < 0 && color != Undefined {
		_, err := c.split(ctx, "split", Undefined, 0, nil)
		return nil, fmt.Errorf("color %d is negative and not Undefined: %w", color, err)
	}
	return c.split(ctx, "split", color, key, nil)
}

// SplitShared is Split with the node as the color (MPI_Comm_split_type with MPI_COMM_TYPE_SHARED). The members of a result are those of c that share
// memory.
func (c *Comm) SplitShared(ctx context.Context, key int) (*Comm, error) {
	return c.split(ctx, "split shared", c.firstHere(), key, nil)
}

// firstHere returns the lowest rank of c on this process's node.
func (c *Comm) firstHere() int {
	for rank := range c.size {
		if c.session.process.IsOnNode(c.spec.Members.Member(rank).Incarnation) {
			return rank
		}
	}
	return 0 // Not reached, because this process is on its node.
}

// Create creates a communicator for some of the members (MPI_Comm_create). It is collective over c. All members pass the same group. They may also pass
// several disjoint groups, each member the one that contains it. A member that passes a group without itself, or an empty one, takes part and gets
// ErrNoComm. A group with processes that are no members of c is ErrGroup, at once and in that member only.
func (c *Comm) Create(ctx context.Context, g *Group) (*Comm, error) {
	ranks, err := c.ranksOf(g)
	if err != nil {
		return nil, err
	}
	if g.Rank() == Undefined {
		return c.split(ctx, "create", Undefined, 0, nil)
	}
	return c.split(ctx, "create", ranks[0], g.Rank(), ranks)
}

// ranksOf returns the ranks in c of a group's members.
func (c *Comm) ranksOf(g *Group) ([]int, error) {
	if c.isClosed() {
		return nil, c.errClosed()
	}
	in := c.group.members.lookup()
	ranks := make([]int, g.Size())
	for i, m := range g.list().all() {
		if ranks[i] = in(m); ranks[i] < 0 {
			return nil, fmt.Errorf("%w: %s is not a member of the communicator", ErrGroup, m.Proc)
		}
	}
	return ranks, nil
}

// choice is the input of one member to Split, as it is sent.
type choice struct {
	color, key int64
	// Id of the member for the new communicator, or NoLocal.
	localID cid.Local
}

// colorFailed is the color of a member without a free id. All members then fail.
const colorFailed = -1

// split is the collective below Split, Create and SplitShared. want, if not nil,
// holds the ranks that must come together, in their order.
func (c *Comm) split(ctx context.Context, op string, color, key int, want []int) (*Comm, error) {
	var d *Comm
	err := c.collective.Do(ctx, op, 0, func() (err error) {
		d, err = c.divide(ctx, choice{color: int64(color), key: int64(key)}, want)
		return err
	})
	return d, err
}

func (c *Comm) divide(ctx context.Context, mine choice, want []int) (d *Comm, err error) {
	table := c.module.CIDs()
	var full error
	if mine.color != Undefined && c.threadRank == nil {
		// All members have reserved an id before any of them has the communicator, so that no further exchange is necessary.
		if mine.localID, full = table.Reserve(); full != nil {
			mine.color = colorFailed
		}
	}
	all, err := c.exchange(ctx, mine)
	if err != nil {
		return nil, err
	}
	if r := slices.IndexFunc(all, func(x choice) bool { return x.color == colorFailed }); r >= 0 {
		if full == nil {
			full = fmt.Errorf("%w: rank %d has no communicator id left", ErrUnsupported, r)
		}
		table.Close(mine.localID) // It is unused. After another error, members may use it.
		return nil, full
	}
	colors := distinct(all)
	ids, err := c.derive(ctx, c.takeLastDup(), len(colors))
	if err != nil {
		return nil, err
	}
	if mine.color == Undefined {
		return nil, fmt.Errorf("%w: the caller belongs to no part", ErrNoComm)
	}
	at, _ := slices.BinarySearch(colors, mine.color)
	ranks := part(all, mine.color)
	if want != nil && !slices.Equal(ranks, want) {
		return nil, fmt.Errorf("%w: the members passed different groups: this one passed ranks %v, but ranks %v joined it", ErrGroup, want, ranks)
	}
	return c.sub(all, ranks, ids[at])
}

// part returns the ranks of one color in their new order.
func part(all []choice, color int64) []int {
	var ranks []int
	for r, x := range all {
		if x.color == color {
			ranks = append(ranks, r)
		}
	}
	slices.SortStableFunc(ranks, func(a, b int) int { return cmp.Compare(all[a].key, all[b].key) })
	return ranks
}

// sub creates the communicator of some ranks.
func (c *Comm) sub(all []choice, ranks []int, id cid.Extended) (*Comm, error) {
	members, group := c.membersOf(id, ranks)
	spec := pml.CommSpec{ID: id, Local: all[c.rank].localID, Rank: slices.Index(ranks, c.rank), Members: members}
	g := &Group{session: c.session.user(), self: c.group.self, members: group, rank: spec.Rank}
	policy, err := policyOf(c.paramValues)
	if err != nil {
		return nil, err
	}
	if policy != cid.PolicyLazy && c.threadRank == nil {
		spec.Indices = make([]cid.Local, len(ranks))
		for i, r := range ranks {
			spec.Indices[i] = all[r].localID
		}
	}
	return c.child(g, spec)
}

// distinct returns the colors in ascending order, without Undefined.
func distinct(all []choice) []int64 {
	var colors []int64
	for _, x := range all {
		if x.color != Undefined {
			colors = append(colors, x.color)
		}
	}
	slices.Sort(colors)
	return slices.Compact(colors)
}

// exchange gathers every member's choice in all members.
func (c *Comm) exchange(ctx context.Context, mine choice) ([]choice, error) {
	all := make([]choice, c.size)
	x := run.Call{Op: coll.Allgather, In: mem.Bytes([]choice{mine}), Out: mem.Bytes(all)}
	x.SetBlockSize(len(x.In))
	if err := c.collective.Inline(ctx, &x); err != nil {
		return nil, err
	}
	for r, x := range all {
		if (x.color >= 0 && c.threadRank == nil) != x.localID.Valid() || x.color < 0 && x.color != Undefined && x.color != colorFailed {
			return nil, badMessage(c.group.members.at(r).Proc, fmt.Errorf("split: invalid choice: color %d with id %v", x.color, x.localID))
		}
	}
	return all, nil
}
