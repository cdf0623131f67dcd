package mpi

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// Split divides the communicator (MPI_Comm_split): members that pass the same
// colour get a communicator of their own, ordered by key and, where keys are
// equal, by the rank in c. It is collective. A member that passes Undefined
// takes part, and gets ErrNoComm. Any other negative colour is an error; the
// others are served as if that member had passed Undefined.
//
// It exchanges colours and keys, in a logarithmic number of steps, and nothing
// else: the ids follow from the colours.
func (c *Comm) Split(ctx context.Context, color, key int) (*Comm, error) {
	if err := c.collective.enter(ctx); err != nil {
		return nil, err
	}
	d, err := c.split(ctx, color, key)
	return d, c.collective.leave(ctx, "split", err)
}

// choice is what one member passes to Split.
type choice struct {
	color, key int64
	local      cid.Local // the member's id for the new communicator, or NoLocal
}

// choiceSize is that of an encoded choice: colour, key, local id.
const choiceSize = 8 + 8 + 4

func (c *Comm) split(ctx context.Context, color, key int) (*Comm, error) {
	mine := choice{color: int64(color), key: int64(key)}
	if color < 0 {
		mine.color = Undefined
	}
	table := c.module.CIDs()
	if mine.color != Undefined {
		var err error
		// All members have offered an id by the time any of them knows of the
		// communicator: no exchange follows.
		if mine.local, err = table.Reserve(); err != nil {
			return nil, err
		}
	}
	all, err := c.exchange(ctx, mine)
	var ids []cid.Extended
	var colors []int64
	if err == nil {
		colors = distinct(all)
		ids, err = c.derive(ctx, len(colors))
	}
	if err != nil {
		table.Close(mine.local)
		return nil, err
	}
	if color < 0 {
		if color != Undefined {
			return nil, fmt.Errorf("%w: colour %d is negative and not Undefined", ErrNoComm, color)
		}
		return nil, fmt.Errorf("%w: the colour is Undefined", ErrNoComm)
	}
	at, _ := slices.BinarySearch(colors, mine.color)
	return c.part(all, mine.color, ids[at])
}

// part makes the communicator of one colour.
func (c *Comm) part(all []choice, color int64, id cid.Extended) (*Comm, error) {
	var ranks []int
	for r, x := range all {
		if x.color == color {
			ranks = append(ranks, r)
		}
	}
	slices.SortStableFunc(ranks, func(a, b int) int { return cmp.Compare(all[a].key, all[b].key) })
	members := make([]Proc, len(ranks))
	spec := pml.CommSpec{
		ID: id, Local: all[c.rank].local, Rank: slices.Index(ranks, c.rank),
		Group: make([]framework.ProcID, len(ranks)), Indices: make([]cid.Local, len(ranks)),
	}
	for i, r := range ranks {
		members[i], spec.Group[i], spec.Indices[i] = c.group.members[r], c.spec.Group[r], all[r].local
	}
	policy, err := policyOf(c.values)
	if err != nil {
		return nil, err
	}
	if policy == cid.PolicyLazy {
		spec.Indices = nil
	}
	return c.child(newGroup(c.session, members), spec)
}

// distinct returns the colours in ascending order, without Undefined.
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

// tagSplit is used on the control plane, where nothing of the user's is.
const tagSplit = 1

// exchange gathers every member's choice in all members, by Bruck's algorithm:
// in each step the number of choices that a member knows doubles.
func (c *Comm) exchange(ctx context.Context, mine choice) ([]choice, error) {
	n := c.size
	known := make([]byte, 0, n*choiceSize) // of ranks c.rank, c.rank+1, ...
	known = binary.BigEndian.AppendUint64(known, uint64(mine.color))
	known = binary.BigEndian.AppendUint64(known, uint64(mine.key))
	known = binary.BigEndian.AppendUint32(known, uint32(mine.local))
	for have := 1; have < n; have *= 2 {
		more := min(have, n-have) * choiceSize
		from := (c.rank + have) % n
		send, recv := known[:more], known[len(known):len(known)+more]
		st, err := c.sendrecv(ctx, send, (c.rank-have+n)%n, tagSplit, recv, from, tagSplit, pml.Control)
		if err != nil {
			return nil, err
		}
		if st.Bytes != more {
			return nil, badMember(c.group.members[from], fmt.Errorf("split: %d bytes where %d were expected", st.Bytes, more))
		}
		known = known[:len(known)+more]
	}
	all := make([]choice, n)
	for i := range n {
		b := known[i*choiceSize:]
		x := choice{
			color: int64(binary.BigEndian.Uint64(b)),
			key:   int64(binary.BigEndian.Uint64(b[8:])),
			local: cid.Local(binary.BigEndian.Uint32(b[16:])),
		}
		r := (c.rank + i) % n
		if (x.color == Undefined) == x.local.Valid() || x.color < 0 && x.color != Undefined {
			return nil, badMember(c.group.members[r], fmt.Errorf("split: colour %d with id %v makes no sense", x.color, x.local))
		}
		all[r] = x
	}
	return all, nil
}
