package mpi

import (
	"context"
	"fmt"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/run"
)

// Collectives with layouts pack the bytes of a layout before the operation, and unpack the result after it. The nonblocking and persistent forms pack
// at the start, and unpack at the completion. The slices of layouts may be reused at once. Each block has a separate layout in its buffer, so that
// these forms also replace those with counts and displacements. Alltoallw is the form of Alltoall. Errors are ErrTruncate for a layout that exceeds
// its buffer, and ErrUnsupported for overlapping blocks of a receive layout.

// BcastLayout is Bcast of the bytes that l names in buf. The layouts of the members have one size.
func BcastLayout(ctx context.Context, c *Comm, buf []byte, l Layout, root int) error {
	var x run.Call
	return c.collective.Run(ctx, &x, bcastLayout(&x, c, buf, l, root))
}

// IbcastLayout starts a BcastLayout.
func IbcastLayout(c *Comm, buf []byte, l Layout, root int) (Request, error) {
	var x run.Call
	return c.start(&x, bcastLayout(&x, c, buf, l, root))
}

// BcastLayoutInit initializes a persistent BcastLayout.
func BcastLayoutInit(ctx context.Context, c *Comm, buf []byte, l Layout, root int) (*Persistent, error) {
	x := new(run.Call)
	return c.persistent(ctx, x, bcastLayout(x, c, buf, l, root))
}

// GatherLayout is Gatherv of layouts. The bytes that sendLayout names in send go to the places that recvLayouts[rank] names in
// root's recv. The two layouts have one size. recv and recvLayouts are used at the root only. nil for send works in
// place at the root.
func GatherLayout(ctx context.Context, c *Comm, send []byte, sendLayout Layout, recv []byte, recvLayouts []Layout, root int) error {
	var x run.Call
	return c.collective.Run(ctx, &x, gatherLayout(&x, c, send, sendLayout, recv, recvLayouts, root))
}

// IgatherLayout starts a GatherLayout.
func IgatherLayout(c *Comm, send []byte, sendLayout Layout, recv []byte, recvLayouts []Layout, root int) (Request, error) {
	var x run.Call
	return c.start(&x, gatherLayout(&x, c, send, sendLayout, recv, recvLayouts, root))
}

// GatherLayoutInit initializes a persistent GatherLayout.
func GatherLayoutInit(ctx context.Context, c *Comm, send []byte, sendLayout Layout, recv []byte, recvLayouts []Layout, root int) (*Persistent, error) {
	x := new(run.Call)
	return c.persistent(ctx, x, gatherLayout(x, c, send, sendLayout, recv, recvLayouts, root))
}

// ScatterLayout is Scatterv of layouts. The bytes that sendLayouts[rank] names in root's send go to the places that the
// recvLayout of that rank names in its recv. The two layouts have one size. send and sendLayouts are used at the root only. nil
// for recv works in place at the root.
func ScatterLayout(ctx context.Context, c *Comm, send []byte, sendLayouts []Layout, recv []byte, recvLayout Layout, root int) error {
	var x run.Call
	return c.collective.Run(ctx, &x, scatterLayout(&x, c, send, sendLayouts, recv, recvLayout, root))
}

// IscatterLayout starts a ScatterLayout.
func IscatterLayout(c *Comm, send []byte, sendLayouts []Layout, recv []byte, recvLayout Layout, root int) (Request, error) {
	var x run.Call
	return c.start(&x, scatterLayout(&x, c, send, sendLayouts, recv, recvLayout, root))
}

// ScatterLayoutInit initializes a persistent ScatterLayout.
func ScatterLayoutInit(ctx context.Context, c *Comm, send []byte, sendLayouts []Layout, recv []byte, recvLayout Layout, root int) (*Persistent, error) {
	x := new(run.Call)
	return c.persistent(ctx, x, scatterLayout(x, c, send, sendLayouts, recv, recvLayout, root))
}

// AllgatherLayout is GatherLayout with the result in every member's recv. The sizes of recvLayouts are the same in all members.
// nil for send works in place.
func AllgatherLayout(ctx context.Context, c *Comm, send []byte, sendLayout Layout, recv []byte, recvLayouts []Layout) error {
	var x run.Call
	return c.collective.Run(ctx, &x, allgatherLayout(&x, c, send, sendLayout, recv, recvLayouts))
}

// IallgatherLayout starts an AllgatherLayout.
func IallgatherLayout(c *Comm, send []byte, sendLayout Layout, recv []byte, recvLayouts []Layout) (Request, error) {
	var x run.Call
	return c.start(&x, allgatherLayout(&x, c, send, sendLayout, recv, recvLayouts))
}

// AllgatherLayoutInit initializes a persistent AllgatherLayout.
func AllgatherLayoutInit(ctx context.Context, c *Comm, send []byte, sendLayout Layout, recv []byte, recvLayouts []Layout) (*Persistent, error) {
	x := new(run.Call)
	return c.persistent(ctx, x, allgatherLayout(x, c, send, sendLayout, recv, recvLayouts))
}

func bcastLayout(x *run.Call, c *Comm, buf []byte, l Layout, root int) error {
	if err := c.checkRoot(root); err != nil {
		return err
	}
	p := packCall(x, coll.Bcast)
	var err error
	x.Out, err = p.recvSide.setOne("layout", buf, l, c.rank != root)
	x.Args.Root, x.Args.Size = root, l.Size()
	return err
}

func gatherLayout(x *run.Call, c *Comm, send []byte, sendLayout Layout, recv []byte, recvLayouts []Layout, root int) error {
	if err := c.checkRoot(root); err != nil {
		return err
	}
	p := packCall(x, coll.Gatherv)
	x.Args.Root = root
	if c.rank == root {
		return gathersLayouts(x, p, c, send, sendLayout, recv, recvLayouts)
	}
	return packSend(x, p, send, sendLayout)
}

func allgatherLayout(x *run.Call, c *Comm, send []byte, sendLayout Layout, recv []byte, recvLayouts []Layout) error {
	if c.isClosed() {
		return c.errClosed()
	}
	p := packCall(x, coll.Allgatherv)
	if err := gathersLayouts(x, p, c, send, sendLayout, recv, recvLayouts); err != nil {
		return err
	}
	x.Args.Size = p.recvSide.packedSize
	return nil
}

// packSend fills in the block that a member sends.
func packSend(x *run.Call, p *packing, send []byte, l Layout) error {
	var err error
	x.In, err = p.sendSide.setOne("sendLayout", send, l, false)
	x.Args.OwnSize = l.Size()
	return err
}

// gathersLayouts fills in the blocks of a member that receives those of all. In place its own block is read from recv.
func gathersLayouts(x *run.Call, p *packing, c *Comm, send []byte, sendLayout Layout, recv []byte, recvLayouts []Layout) error {
	if x.Args.IsInPlace = send == nil; !x.Args.IsInPlace {
		if err := packSend(x, p, send, sendLayout); err != nil {
			return err
		}
	}
	if err := p.recvSide.set("recvLayouts", c.size, recv, recvLayouts, true); err != nil {
		return err
	}
	p.recvSide.isPacked = x.Args.IsInPlace
	x.RecvBlocks.Counts = p.recvSide.blockSizes
	if own := p.recvSide.blockSizes[c.rank]; !x.Args.IsInPlace && x.Args.OwnSize != own {
		return fmt.Errorf("%w: sendLayout has %d bytes, and recvLayouts[%d], the caller's, has %d", ErrTruncate, x.Args.OwnSize, c.rank, own)
	}
	x.Args.OwnSize = p.recvSide.blockSizes[c.rank]
	return nil
}

func scatterLayout(x *run.Call, c *Comm, send []byte, sendLayouts []Layout, recv []byte, recvLayout Layout, root int) error {
	if err := c.checkRoot(root); err != nil {
		return err
	}
	p := packCall(x, coll.Scatterv)
	x.Args.Root = root
	x.Args.IsInPlace = c.rank == root && recv == nil
	if !x.Args.IsInPlace {
		var err error
		if x.Out, err = p.recvSide.setOne("recvLayout", recv, recvLayout, true); err != nil {
			return err
		}
		x.Args.OwnSize = recvLayout.Size()
	}
	if c.rank != root {
		return nil
	}
	from := &p.sendSide
	if x.Args.IsInPlace { // In place the root's Out is the input.
		from = &p.recvSide
	}
	if err := from.set("sendLayouts", c.size, send, sendLayouts, false); err != nil {
		return err
	}
	x.SendBlocks.Counts = from.blockSizes
	switch own := from.blockSizes[root]; {
	case x.Args.IsInPlace:
		x.Args.OwnSize = own
	case x.Args.OwnSize != own:
		return fmt.Errorf("%w: recvLayout has %d bytes, and sendLayouts[%d], the caller's, has %d", ErrTruncate, x.Args.OwnSize, root, own)
	}
	return nil
}
