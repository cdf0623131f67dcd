package run

import (
	"context"
	"fmt"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework"
)

// A Call is a collective operation with checked arguments. It is filled in place and not copied. A
// copy would cost as much as the whole remaining work of the root of a Bcast of 8 bytes, because it
// loads in one piece what was just stored in several. It remains the caller's, and a blocking call
// keeps no reference to it.
type Call struct {
	Op      coll.Operation
	Args    coll.Args
	In, Out []byte
	Reducer coll.Reducer
	// Blocks of In and Out by rank, in elements, if their sizes differ.
	SendBlocks, RecvBlocks Blocks
	// Algorithm of an operation among neighbors; nil for others.
	NeighborChoice *coll.Choice
	// Of a form with layouts, in place of In and Out as far as it has a side. nil for others.
	Packing Packing
}

// A Packing packs the bytes of layouts before an operation, and unpacks those of its result. The
// operation works on contiguous memory.
type Packing interface {
	// Room returns the size of the contiguous memory in bytes.
	Room() int
	// Pack packs into room, and points the buffers at it.
	Pack(b *coll.Buffers, room []byte)
	// ResultSize returns the number of bytes that Unpack writes.
	ResultSize() int
	// Unpack writes the result to the buffers of its layouts.
	Unpack(b *coll.Buffers)
}

// packedRoom is Packing.Room, and 0 without one.
func (x *Call) packedRoom() int {
	if x.Packing == nil {
		return 0
	}
	return x.Packing.Room()
}

// SetBlockSize sets the size of all blocks, in bytes.
func (x *Call) SetBlockSize(size int) { x.Args.Size, x.Args.OwnSize = size, size }

// Run carries out a blocking call, unless wrong has the error of its arguments.
func (k *State) Run(ctx context.Context, x *Call, wrong error) error {
	if wrong != nil {
		return wrong
	}
	return k.Do(ctx, x.Op.String(), x.Args.Size, func() error { return k.Inline(ctx, x) })
}

// Inline carries out the schedule of a call. It is called inside Do.
func (k *State) Inline(ctx context.Context, x *Call) error {
	if k.resources != nil && k.nonblocking.unfinishedCount.Load() > 0 {
		if err := k.awaitQueued(ctx); err != nil {
			return err
		}
	}
	choice, err := k.chooseAndOpen(ctx, x)
	if err == nil && k.comparesCalls {
		err = k.compare(ctx, callRecord(x, choice))
	}
	if err != nil {
		return err
	}
	s := k.schedule(choice.Algorithm, x)
	p := &k.peers
	// The memory of p is used, because arguments of the instance escape to the heap.
	p.call.Sequence, p.call.IsWaiterAsleep = k.operationCount, false
	p.call.In, p.call.Out, p.call.Temp, p.call.Shared = x.In, x.Out, nil, nil
	p.call.Reducer = x.Reducer
	if len(k.instances) > 0 {
		if p.instance = k.instance(choice.Component); p.instance != nil {
			p.call.Shared = p.instance.Memory()
		}
	}
	temp := s.Temp + x.packedRoom()
	if temp > 0 {
		p.call.Temp = p.Scratch(temp)
	}
	if x.Packing != nil {
		x.Packing.Pack(&p.call.Buffers, p.call.Temp[s.Temp:])
	}
	p.begin(k.nextTag())
	err = s.Inline(background(ctx), p, &p.call.Buffers, &p.call.Reducer)
	if err == nil && x.Packing != nil && x.Packing.ResultSize() > 0 {
		x.Packing.Unpack(&p.call.Buffers)
	}
	if p.lateErr != nil {
		p.call = coll.Call{}
		return fmt.Errorf("%w; %w", err, p.lateErr)
	}
	if temp > 0 {
		p.Release(p.call.Temp)
	}
	if len(x.In)+len(x.Out) > scratchLimit || x.Packing != nil { // Less may stay in memory until the next call.
		p.call = coll.Call{}
	}
	return err
}

// maxSchedules is the number of schedules that a communicator keeps. Loops alternate between few
// operations.
const maxSchedules = 4

// cachedSchedule is a schedule that was carried out inline.
type cachedSchedule struct {
	schedule  coll.Schedule
	algorithm *coll.Algorithm
	args      coll.Args
}

// schedule returns that of a call, which an earlier one with equal arguments may have left.
// Called inside Do.
func (k *State) schedule(alg *coll.Algorithm, x *Call) *coll.Schedule {
	for i := range k.cachedSchedules {
		if p := &k.cachedSchedules[i]; p.algorithm == alg && p.args == x.Args {
			return &p.schedule
		}
	}
	p := &k.cachedSchedules[k.replacedSchedules%maxSchedules]
	k.replacedSchedules++
	p.algorithm = nil
	k.plan(&p.schedule, &p.args, alg, x)
	if x.Args.Vectors == nil { // Otherwise not all arguments are in args.
		p.algorithm = alg
	}
	return &p.schedule
}

// chooseAndOpen returns the algorithm of a blocking call. It opens instances before the second
// operation. Called inside Do.
func (k *State) chooseAndOpen(ctx context.Context, x *Call) (*coll.Choice, error) {
	if k.resources == nil && k.env.IsThreadRank {
		if err := k.prepare(); err != nil {
			return nil, err
		}
	}
	if k.resources != nil && k.hasUnopened && (k.operationCount > 0 || k.env.IsThreadRank) && x.NeighborChoice == nil {
		if err := k.open(ctx); err != nil {
			return nil, err
		}
	}
	return k.algorithmFor(x)
}

// algorithmFor returns the algorithm of a call. Called inside Do.
func (k *State) algorithmFor(x *Call) (*coll.Choice, error) {
	if k.resources == nil {
		if err := k.prepare(); err != nil {
			return nil, err
		}
	}
	return lookUp(k.usableTable, x)
}

// prepare creates the resources. Called inside Do.
func (k *State) prepare() error {
	shape, err := k.env.Host.Shape()
	if err != nil {
		return err
	}
	k.resources = &resources{
		peers: peers{collState: k}, usableTable: shape.plainTable, plainTable: shape.plainTable, force: shape.force,
		comparesCalls: shape.comparesCalls, nodes: shape.nodes, offers: shape.offers,
		hasUnopened: shape.hasInstances && k.sharesMemory(),
	}
	k.hasResources.Store(true)
	k.env.Host.RecordAlgorithms(k.usableTable, false)
	return nil
}

// sharesMemory reports whether ranks share memory for instances. Goroutine ranks share that of their
// process.
func (k *State) sharesMemory() bool {
	return !k.env.IsThreadRank || k.env.Host.LocalRanks().Division().Count() < k.env.Size
}

// plainAlgorithmFor is algorithmFor among the algorithms without an instance. Nonblocking
// operations with coll.check use them, because ranks begin these when the records have arrived,
// in any order, while instances require one order. Called inside Do, after algorithmFor.
func (k *State) plainAlgorithmFor(x *Call) (*coll.Choice, error) { return lookUp(k.plainTable, x) }

func lookUp(table *coll.Table, x *Call) (*coll.Choice, error) {
	if x.NeighborChoice != nil {
		return x.NeighborChoice, nil
	}
	size := x.Args.Size
	if x.Op == coll.Scatter {
		size = 0
	}
	choice := table.For(x.Op, size)
	if choice.Algorithm == nil {
		return nil, fmt.Errorf("%w: no selected coll component offers %v", framework.ErrUnsupported, x.Op)
	}
	return choice, nil
}

// plan writes the schedule of a call into s, and its arguments into args. It uses copies, because
// values passed to an algorithm escape to the heap, and x must not. Called inside Do.
func (k *State) plan(s *coll.Schedule, args *coll.Args, alg *coll.Algorithm, x *Call) {
	if x.SendBlocks.Counts != nil || x.RecvBlocks.Counts != nil {
		v := &k.vectors
		v.SendCounts, v.SendOffsets = x.SendBlocks.bytes(&k.vectorMemory[0], &k.vectorMemory[1], x.Args.ElemSize)
		v.RecvCounts, v.RecvOffsets = x.RecvBlocks.bytes(&k.vectorMemory[2], &k.vectorMemory[3], x.Args.ElemSize)
		x.Args.Vectors = v
	}
	s.Reset()
	*args = x.Args
	alg.Plan(s, coll.Member{Rank: k.env.Rank, Size: k.env.Size}, args)
}

// nextTag returns the tag of the next operation, which all ranks count alike. Called inside Do.
func (k *State) nextTag() int {
	tag := int(k.operationCount % (coll.MaxTag + 1))
	k.operationCount++
	return tag
}
