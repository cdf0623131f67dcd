package mpi

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/components/core"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/mem"
)

// All members of a communicator call collective operations in the same order, with matching arguments. An invalid argument is an error of that
// member alone, returned before anything is sent. The other members still wait for it.
//
// A collective that fails halfway breaks the communicator's collectives, because members have different views of its completion. Reasons are the end
// of its context, a panic of an operation (Op), and other failures. All later collectives return ErrBroken, including the creation of
// communicators. The other members are notified, so that theirs end with ErrBroken and the name of that member. Point-to-point messages still work.

// call is a collective operation with checked arguments. It is filled in place and not copied. A copy would cost as much as the whole remaining work
// of the root of a Bcast of 8 bytes, because it loads in one piece what was just stored in several.
type call struct {
	op      coll.Operation
	args    coll.Args
	in, out []byte
	reducer coll.Reducer
	// Blocks of in and out by rank, in elements, if their sizes differ.
	send, recv blocks
	// Algorithm of an operation among neighbors; nil for others.
	choice *coll.Choice
	// Of a form with layouts, in place of in and out as far as it has a side.
	packing *packing
}

// run runs one blocking call, unless its arguments are invalid.
func (k *collective) run(ctx context.Context, x *call, wrong error) error {
	if wrong != nil {
		return wrong
	}
	return k.do(ctx, x.op.String(), x.args.Size, func() error { return k.inline(ctx, x) })
}

// inline runs the schedule of a call. Called inside do.
func (k *collective) inline(ctx context.Context, x *call) error {
	if k.collectiveResources != nil && k.started.n.Load() > 0 {
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
	p.call.In, p.call.Out, p.call.Temp, p.call.Shared = x.in, x.out, nil, nil
	p.call.Reducer = x.reducer
	if len(k.instances) > 0 {
		if p.instance = k.instance(choice.Component); p.instance != nil {
			p.call.Shared = p.instance.Memory()
		}
	}
	temp := s.Temp + x.packing.room()
	if temp > 0 {
		p.call.Temp = p.Scratch(temp)
	}
	if x.packing != nil {
		x.packing.pack(&p.call.Buffers, p.call.Temp[s.Temp:])
	}
	p.begin(k.nextTag())
	err = s.Inline(background(ctx), p, &p.call.Buffers, &p.call.Reducer)
	if err == nil && x.packing.resultSize() > 0 {
		x.packing.unpack(&p.call.Buffers)
	}
	if temp > 0 {
		p.Release(p.call.Temp)
	}
	if len(x.in)+len(x.out) > scratchLimit || x.packing != nil { // Less may stay in memory until the next call.
		p.call = coll.Call{}
	}
	return err
}

// maxSchedules is the number of schedules that a communicator keeps. Loops alternate between few operations.
const maxSchedules = 4

// cachedSchedule is a schedule that was carried out inline.
type cachedSchedule struct {
	schedule  coll.Schedule
	algorithm *coll.Algorithm
	args      coll.Args
}

// schedule returns that of a call, which an earlier one with equal arguments may have left.
// Called inside do.
func (k *collective) schedule(alg *coll.Algorithm, x *call) *coll.Schedule {
	for i := range k.schedules {
		if p := &k.schedules[i]; p.algorithm == alg && p.args == x.args {
			return &p.schedule
		}
	}
	p := &k.schedules[k.replacedSchedules%maxSchedules]
	k.replacedSchedules++
	p.algorithm = nil
	k.plan(&p.schedule, &p.args, alg, x)
	if x.args.Vectors == nil { // Otherwise not all arguments are in args.
		p.algorithm = alg
	}
	return &p.schedule
}

// chooseAndOpen returns the algorithm of a blocking call. It opens instances before the second operation. Called inside do.
func (k *collective) chooseAndOpen(ctx context.Context, x *call) (*coll.Choice, error) {
	if k.collectiveResources == nil && k.comm().threadRank != nil {
		if err := k.prepare(); err != nil {
			return nil, err
		}
	}
	if k.collectiveResources != nil && k.hasUnopened && (k.operationCount > 0 || k.comm().threadRank != nil) && x.choice == nil {
		if err := k.open(ctx); err != nil {
			return nil, err
		}
	}
	return k.algorithmFor(x)
}

// algorithmFor returns the algorithm of a call. Called inside do.
func (k *collective) algorithmFor(x *call) (*coll.Choice, error) {
	if k.collectiveResources == nil {
		if err := k.prepare(); err != nil {
			return nil, err
		}
	}
	return lookUp(k.table, x)
}

// prepare creates the resources. Called inside do.
func (k *collective) prepare() error {
	c := k.comm()
	known, err := c.shapeData()
	if err != nil {
		return err
	}
	k.collectiveResources = &collectiveResources{peers: peers{c: c}, table: known.table, plainTable: known.table, force: known.force, comparesCalls: known.comparesCalls, nodes: known.nodes, offers: known.offers, hasUnopened: known.opens && c.sharesMemory()}
	k.used.Store(true)
	k.comm().session.process.RecordCollectives(k.comm().size, k.table, false)
	return nil
}

// plainAlgorithmFor is algorithmFor among the algorithms without an instance. Nonblocking operations with coll.check use them, because members begin these
// when the records have arrived, in any order, while instances require one order. Called inside do, after algorithmFor.
func (k *collective) plainAlgorithmFor(x *call) (*coll.Choice, error) { return lookUp(k.plainTable, x) }

func lookUp(table *coll.Table, x *call) (*coll.Choice, error) {
	if x.choice != nil {
		return x.choice, nil
	}
	size := x.args.Size
	if x.op == coll.Scatter {
		size = 0
	}
	choice := table.For(x.op, size)
	if choice.Algorithm == nil {
		return nil, fmt.Errorf("%w: no selected coll component offers %v", ErrUnsupported, x.op)
	}
	return choice, nil
}

// plan writes the schedule of a call into s, and its arguments into args. It uses copies, because values passed to an algorithm escape to the heap, and
// x must not. Called inside do.
func (k *collective) plan(s *coll.Schedule, args *coll.Args, alg *coll.Algorithm, x *call) {
	if x.send.counts != nil || x.recv.counts != nil {
		v := &k.vectors
		v.SendCounts, v.SendOffsets = x.send.bytes(&k.vectorMemory[0], &k.vectorMemory[1], x.args.ElemSize)
		v.RecvCounts, v.RecvOffsets = x.recv.bytes(&k.vectorMemory[2], &k.vectorMemory[3], x.args.ElemSize)
		x.args.Vectors = v
	}
	s.Reset()
	*args = x.args
	alg.Plan(s, coll.Member{Rank: k.comm().rank, Size: k.comm().size}, args)
}

// nextTag returns the tag of the next operation, which the members count alike.
// Called inside do.
func (k *collective) nextTag() int {
	tag := int(k.operationCount % (coll.MaxTag + 1))
	k.operationCount++
	return tag
}

// shapeData returns the shared data for communicators of c's shape.
func (c *Comm) shapeData() (*shapeData, error) {
	e := c.session.process
	find := func() (*shapeData, error) {
		shape := coll.Shape{Size: c.size, Nodes: e.Nodes(c.spec.Members)}
		if c.threadRank != nil {
			shape.Procs = c.division().Placement
		}
		return e.collectives(shape, c.values)
	}
	if t, ok := c.spec.Members.(*table); ok {
		return t.shapeData(find)
	}
	return find()
}

// sharesMemory reports whether members share memory for instances. Goroutine ranks share that of their process.
func (c *Comm) sharesMemory() bool {
	return c.threadRank == nil || c.division().Count() < c.size
}

// shapeData is the common data of communicators with one shape and the same parameters.
type shapeData struct {
	nodes         coll.Placement
	force         *coll.Force
	comparesCalls bool
	offers        []coll.ComponentOffer
	opens         bool // Some offers need an instance.
	// Algorithms without an instance.
	table *coll.Table
}

// shapeKey identifies a shape with its parameters. It has slices as the bytes of their elements.
type shapeKey struct {
	size         int
	nodes, procs string
	force, check string
}

// collectives returns the algorithms for communicators of a shape.
func (e *process) collectives(shape coll.Shape, values *framework.Values) (*shapeData, error) {
	force, _ := values.Get("coll.force")
	check, _ := values.Get("coll.check")
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.shapes[shapeKey{shape.Size, string(mem.Bytes(shape.Nodes)), string(mem.Bytes(shape.Procs)), force.Text, check.Text}]; s != nil {
		return s, nil // Without an allocation, because each of 10,000 ranks calls this.
	}
	var p core.Coll
	if err := values.Decode("coll", &p); err != nil {
		return nil, err
	}
	s := &shapeData{nodes: shape.ByNode(), comparesCalls: p.Check}
	var err error
	if s.force, err = e.ForcedAlgorithms(values); err == nil {
		s.offers, err = e.CollOffers(shape)
	}
	if err != nil {
		return nil, err
	}
	var plain []coll.ComponentOffer
	for _, o := range s.offers {
		if o.Open == nil {
			plain = append(plain, o)
		}
	}
	s.opens = len(plain) < len(s.offers)
	s.table = coll.NewTable(plain, s.force)
	if e.shapes == nil {
		e.shapes = map[shapeKey]*shapeData{}
	}
	e.shapes[shapeKey{shape.Size, string(mem.Bytes(shape.Nodes)), string(mem.Bytes(shape.Procs)), force.Text, check.Text}] = s
	return s, nil
}

// Barrier returns when all members have called it (MPI_Barrier).
func Barrier(ctx context.Context, c *Comm) error {
	return c.collective.run(ctx, &call{op: coll.Barrier}, nil)
}

// Bcast sends root's buf to all others' buf (MPI_Bcast), which has the same
// length.
func Bcast[T any](ctx context.Context, c *Comm, buf []T, root int) error {
	var x call
	return c.collective.run(ctx, &x, bcast(&x, c, buf, root))
}

func bcast[T any](x *call, c *Comm, buf []T, root int) error {
	if err := cmp.Or(sendable[T](), c.checkRoot(root)); err != nil {
		return err
	}
	x.op, x.out = coll.Bcast, mem.Bytes(buf)
	x.args.Root, x.args.Size = root, len(x.out)
	return nil
}

func (c *Comm) checkRoot(root int) error {
	if c.isClosed() {
		return c.errClosed()
	}
	if root < 0 || root >= c.size {
		return fmt.Errorf("root: %w", c.errRank(root))
	}
	return nil
}

// errShort is the error of a buffer that is too short.
func errShort(what string, has, needs int) error {
	return fmt.Errorf("%w: %s has %d elements, and needs %d", ErrTruncate, what, has, needs)
}

// times is n blocks of count elements, or the largest int if that is none.
func times(n, count int) int {
	if count > math.MaxInt/n {
		return math.MaxInt
	}
	return n * count
}
