package mpi

import (
	"context"
	"runtime/pprof"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/run"
	"github.com/ferrympi/ferry/components/core"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/mem"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// collectiveHost is a Comm as coll/run needs it (run.Host).
type collectiveHost Comm

func (c *Comm) initCollective() {
	c.collective.Init(run.Env{
		Host: (*collectiveHost)(c), PML: c.pml, ID: c.spec.ID, Rank: c.rank, Size: c.size, RankResources: &c.rankState.Rank,
		CommState: &c.stateBits, HasHooks: c.session.process.collectiveHooks != nil, IsThreadRank: c.threadRank != nil,
	})
}

func (h *collectiveHost) comm() *Comm { return (*Comm)(h) }

func (h *collectiveHost) CallError() error                { return h.comm().callError() }
func (h *collectiveHost) TerminalError() error            { return h.comm().terminalError() }
func (h *collectiveHost) IsClosed() bool                  { return h.comm().isClosed() }
func (h *collectiveHost) Refuse(span cid.Span, why error) { h.comm().refuseSpan(span, why) }
func (h *collectiveHost) ReportBroken(why error)          { h.comm().reportBroken(h.spec.ID, h.group, why) }
func (h *collectiveHost) OperationsEnded()                { h.comm().endPart() }
func (h *collectiveHost) Spawn(f func(context.Context))   { h.session.asyncs.spawn(f) }
func (h *collectiveHost) Labels() pprof.LabelSet          { return h.comm().Labels() }
func (h *collectiveHost) Shape() (*run.Shape, error)      { return h.comm().collectiveShape() }
func (h *collectiveHost) FormOf(buf []byte) *pml.Form {
	return h.session.process.transportMemory.formOf(buf)
}
func (h *collectiveHost) RecordAlgorithms(t *coll.Table, isComplete bool) {
	h.session.process.RecordCollectives(h.size, t, isComplete)
}

func (h *collectiveHost) Watch(ctx context.Context, op string, bytes int, seq uint32, nonblocking bool) (end func(error)) {
	return h.comm().watch(ctx, op, bytes, seq, nonblocking)
}

func (h *collectiveHost) EndError(ctx context.Context, op string, err error) error {
	return ended(ctx, op, err)
}

func (h *collectiveHost) RecordOmission(component string, why error) {
	e := h.session.process
	e.RecordOmission(component, why)
	e.Env().Logger.Info("a coll component is not used on a communicator", "component", component, "id", h.spec.ID, "err", why)
}

// Node implements run.Host.
func (h *collectiveHost) Node() coll.Node {
	if sharer, component := h.session.process.Sharer(); sharer != nil {
		return &node{h.comm(), sharer, component}
	}
	return nil
}

// LocalRanks implements run.Host.
func (h *collectiveHost) LocalRanks() run.LocalRanks {
	if h.threadRank == nil {
		return nil
	}
	return (*localRanks)(h)
}

// localRanks is a Comm of goroutine ranks as coll/run needs it (run.LocalRanks).
type localRanks Comm

func (l *localRanks) Division() *run.Division { return (*Comm)(l).division() }
func (l *localRanks) Openings() *run.Openings { return &l.threadRank.activation.openings }

func (l *localRanks) Bell(rank int) progress.RemoteBell {
	endpoint := l.spec.Members.Member(rank).Endpoint
	return l.threadRank.activation.threadComm.team.Engine(int(endpoint)).RankBell()
}

// division returns the division of a communicator of goroutine ranks.
func (c *Comm) division() *run.Division {
	return c.spec.Members.(*table).divided(c.session.process.Env().Self)
}

// node implements coll.Node.
type node struct {
	c      *Comm
	sharer btl.Sharer
	// Component of sharer.
	sharerComponent string
}

func (n *node) peer(rank int) (framework.Peer, error) {
	if rank < 0 || rank >= n.c.size {
		return framework.Peer{}, n.c.errRank(rank)
	}
	return n.c.session.process.Peer(n.c.spec.Members.Member(rank).Incarnation, n.sharerComponent)
}

// NewArea implements coll.Node.
func (n *node) NewArea(size int) (*btl.Area, error) { return n.sharer.NewArea(size) }

// OpenArea implements coll.Node.
func (n *node) OpenArea(rank int, number uint32, size int) (*btl.Area, error) {
	peer, err := n.peer(rank)
	if err != nil {
		return nil, err
	}
	return n.sharer.OpenArea(peer, number, size)
}

// Bell implements coll.Node.
func (n *node) Bell(rank int) (progress.RemoteBell, func(), error) {
	peer, err := n.peer(rank)
	if err != nil {
		return progress.RemoteBell{}, nil, err
	}
	return n.sharer.BellOf(peer)
}

// collectiveShape returns the algorithms for communicators of c's shape.
func (c *Comm) collectiveShape() (*run.Shape, error) {
	e := c.session.process
	find := func() (*run.Shape, error) {
		shape := coll.Shape{Size: c.size, Nodes: e.Nodes(c.spec.Members)}
		if c.threadRank != nil {
			shape.Procs = c.division().Placement
		}
		return e.collectives(shape, c.paramValues)
	}
	if t, ok := c.spec.Members.(*table); ok {
		return t.shapeData(find)
	}
	return find()
}

// shapeKey identifies a shape with its parameters. It has slices as the bytes of their elements.
type shapeKey struct {
	size         int
	nodes, procs string
	force, check string
}

// collectives returns the algorithms for communicators of a shape.
func (e *process) collectives(shape coll.Shape, values *framework.Values) (*run.Shape, error) {
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
	forced, err := e.ForcedAlgorithms(values)
	if err != nil {
		return nil, err
	}
	offers, err := e.CollOffers(shape)
	if err != nil {
		return nil, err
	}
	s := run.MakeShape(shape.ByNode(), forced, offers, p.Check)
	if e.shapes == nil {
		e.shapes = map[shapeKey]*run.Shape{}
	}
	e.shapes[shapeKey{shape.Size, string(mem.Bytes(shape.Nodes)), string(mem.Bytes(shape.Procs)), force.Text, check.Text}] = s
	return s, nil
}
