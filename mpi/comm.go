package mpi

import (
	"context"
	"encoding/hex"
	"fmt"
	"runtime/pprof"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/ferrympi/ferry/assembly"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/coll/run"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// Special values of ranks, tags and colors (MPI-4.1 section 3.2.4 and others).
const (
	AnySource = pml.AnySource // Source of receives and probes that accept any member.
	AnyTag    = pml.AnyTag    // Tag of receives and probes that accept any tag.
	ProcNull  = pml.ProcNull  // Rank without a process. Operations with it complete at once and transfer no data.
	Undefined = -32766        // No rank, no color or no index.
)

// CommID identifies a communicator. It is equal in all members, and unique in the job.
type CommID [16]byte

// String shows the id in hexadecimal.
func (id CommID) String() string { return hex.EncodeToString(id[:]) }

// Comm is a communicator, which is a group with a separate communication context. Messages of different communicators never match (MPI-4.1
// chapter 7).
type Comm struct {
	// Fields that every message needs are first, in one cache line.
	pml    pml.Comm
	size   int
	tagMax int
	// Of stateClosed and others; 0 while all calls are possible.
	stateBits atomic.Uint32

	membership
	module      assembly.PML
	paramValues *framework.Values
	spec        pml.CommSpec

	// nil if there is none. Set before the communicator is used.
	topology   *topology
	collective run.State
	derivation
	failures   failures
	wildcards  wildcards
	partitions partitions
	// Parts of the closed communicator that have not ended, see Close.
	pendingEndings atomic.Int32
	// Error of calls with stateRevoked or stateIsolated, which are set later.
	terminalErr atomic.Pointer[error]
	// nil until the first Agree, Shrink or note.
	agreements atomic.Pointer[agreements]

	mu sync.Mutex
	properties
	persistentContexts
}

// membership is the member that a handle belongs to. It is constant.
type membership struct {
	rank      int
	rankState *rankState // Of this rank.
	session   *Session
	// Of a goroutine rank. nil if the rank is the process.
	threadRank *threadRank
	group      *Group
}

// derivation is the state of the creation of children. Guarded by Comm.collective.
type derivation struct {
	// Last Idup that may be incomplete, or nil.
	lastDup *CommRequest
	// Number of bases that collective.Children had after the first.
	rebaseCount int
}

// properties are those that the program sets. Guarded by Comm.mu.
type properties struct {
	name string
	// In the order of SetAttr.
	attrs []attribute
}

// persistentContexts links a communicator with the contexts of its persistent collectives, see persistentContext.
type persistentContexts struct {
	// Nil after Close. Guarded by Comm.mu.
	contexts map[*Comm]struct{}
	// Name of the persistent collective with this context, for reports, or "". Guarded by Comm.mu.
	usedBy string
	// Communicator that this one is a context of, or zero. Guarded by process.mu.
	contextOf cid.Extended
}

// newComm returns the handle of a communicator for a rank, which is that of the process if rank is nil. The handle holds the session open. If spec has
// no local id, newComm reserves one, and releases it after an error. An id that other members know stays in use, so that their messages match no
// later communicator.
func newComm(s *Session, rank *threadRank, g *Group, m assembly.PML, spec pml.CommSpec, values *framework.Values) (*Comm, error) {
	c := &Comm{
		size: g.Size(), tagMax: m.Caps().TagMax,
		membership: membership{rank: spec.Rank, rankState: &s.process.rankState, session: s, threadRank: rank, group: g},
		module:     m, paramValues: values, spec: spec,
	}
	err := s.hold(&s.commCount)
	if err == nil {
		if err = c.addToPML(); err != nil {
			s.drop(&s.commCount)
		}
	}
	if err != nil { // The other members may have it.
		c.refuse(spec.ID, g, err)
		return nil, err
	}
	c.initCollective()
	s.process.add(c)
	if rank != nil {
		if err := rank.add(c); err != nil {
			_ = c.Close()
			return nil, err
		}
	}
	return c, nil
}

// addToPML creates c.pml.
func (c *Comm) addToPML() (err error) {
	if c.threadRank != nil {
		t := c.threadRank.activation.threadComm
		c.rankState, c.tagMax = c.threadRank.rankState, min(c.tagMax, t.team.Caps().TagMax)
		c.pml, err = t.team.AddComm(c.spec)
		return err
	}
	ids := c.module.CIDs()
	mine := !c.spec.Local.Valid()
	if mine {
		if c.spec.Local, err = ids.Reserve(); err != nil {
			return err
		}
	}
	if c.pml, err = c.module.AddComm(c.spec); err != nil && mine {
		ids.Close(c.spec.Local)
	}
	return err
}

// key identifies the handle among those of the process.
func (c *Comm) key() cid.EndpointID {
	return cid.EndpointID{Extended: c.spec.ID, Endpoint: c.spec.Members.Member(c.rank).Endpoint}
}

// refuseSpan announces that this rank is not in the communicators of the span, now or later. Members
// that wait for it there are notified.
func (c *Comm) refuseSpan(span cid.Span, why error) {
	endpoint := pml.AllEndpoints
	if c.threadRank != nil {
		endpoint = int(c.threadRank.endpoint)
	}
	c.session.process.refuseHandles(span, endpoint)
	if c.threadRank == nil {
		c.module.Refuse(span, pml.AllEndpoints)
	} else {
		c.threadRank.refuse(span, why)
	}
}

// reportBroken notifies the other members of g that this rank takes part in no further collective of the communicator.
func (c *Comm) reportBroken(id cid.Extended, g *Group, why error) {
	if c.threadRank != nil {
		why = fmt.Errorf("rank %d: %w", g.rank, why)
		if !c.session.process.broken(id, c.session.process.identity.Proc, why.Error(), c) {
			return
		}
	}
	c.session.process.ReportBroken(id, g.processes(), why)
}

// memberFailed ends the collectives of a communicator that has this process as a
// member, and suspends receives from any source. Other messages between others are not concerned.
func (c *Comm) memberFailed(peer framework.Incarnation, reason string) {
	if peer == c.session.process.Env().Self {
		c.isolate(reason)
	} else if ranks := c.ranksOfProcess(peer); len(ranks) > 0 {
		c.collective.Abort(pml.ProcFailed(c.spec.Members, ranks, reason))
		c.suspendReceives()
		c.membersFailed(ranks)
	}
}

// breakCollectives ends a communicator's collectives because another member has stopped taking part.
// Pending operations end, unless their messages have arrived.
func (c *Comm) breakCollectives(p Proc, reason string) {
	who := p.String()
	if c.threadRank != nil { // The reason names the rank.
		who = "a member"
	} else if rank := c.group.members.rank(member{Proc: p}); rank >= 0 {
		who = fmt.Sprintf("rank %d", rank)
	}
	err := fmt.Errorf("%w: %s no longer takes part in them: %s; "+run.Remedy, ErrBroken, who, reason)
	c.collective.Abort(err)
	c.collective.Fail(err)
}

// loseMember ends waits in shared memory for a process that has closed its session, or from
// which this one is cut off. Messages from it fail by themselves.
func (c *Comm) loseMember(ev framework.PeerEvent) {
	ranks := c.ranksOfProcess(ev.Peer)
	c.membersEnded(ranks, ev.State)
	if c.threadRank != nil { // Goroutine ranks share memory with those of their process only.
		return
	}
	for _, rank := range ranks {
		c.collective.LoseRank(rank, ev.Err)
	}
}

// ranksOfProcess returns the ranks that a process has in the communicator. The result is read-only.
func (c *Comm) ranksOfProcess(peer framework.Incarnation) (ranks []int) {
	if c.threadRank == nil {
		if rank := c.spec.Members.Rank(pml.Member{Incarnation: peer}); rank >= 0 {
			ranks = append(ranks, rank)
		}
		return ranks
	}
	return c.division().Of(peer)
}

// membersOf returns the members of a communicator that has these ranks of c, and those of its group.
func (c *Comm) membersOf(id cid.Extended, ranks []int) (pml.Members, memberList) {
	create := func() *table {
		of := c.spec.Members
		if t, isTable := of.(*table); isTable {
			of = t.Members // So that a child does not keep the tables of its ancestors.
		}
		members := make([]pml.Member, len(ranks))
		for i, r := range ranks {
			members[i] = of.Member(r)
		}
		return &table{Members: pml.NewMembersFrom(of, members), groupMembers: c.group.members.some(ranks)}
	}
	if c.threadRank == nil {
		t := create()
		return t.Members, t.groupMembers
	}
	t := c.threadRank.activation.shareTable(id, create)
	return t, t.groupMembers
}

// construct draws a base for further children together with the processes of the members, after a number of
// others.
func (c *Comm) construct(ctx context.Context, before int) (uint64, error) {
	draw := func() (uint64, error) {
		// The tag begins with a byte that keeps it from a user's.
		made, err := c.session.process.Construct(ctx, c.group.processes(), "\x00children of "+c.spec.ID.String(), nil)
		return made.ContextID, err
	}
	if c.threadRank == nil {
		return draw()
	}
	return c.threadRank.activation.constructOnce(ctx, constructKey{c.spec.ID, before}, c.rank, c.ranksOfProcess(c.session.process.Env().Self), draw)
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

// Name returns the name set by SetName. Before that, a communicator from a group has its tag as the name, and others have none.
func (c *Comm) Name() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.name
}

// SetName sets the name of the communicator in reports and logs. It is local.
func (c *Comm) SetName(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.name = name
}

// Profile labels of Labels.
const (
	labelComm     = "ferry.comm"
	labelCommRank = "ferry.comm.rank"
)

// Labels returns profile labels for runtime/pprof that distinguish ranks and communicators. They are ferry.rank (of the process in its job),
// ferry.comm (the name, or the id without a name) and ferry.comm.rank.
//
//	pprof.Do(ctx, comm.Labels(), func(ctx context.Context) { solve(ctx, comm) })
//
// Goroutines of the library have these labels while they work for one communicator, and otherwise ferry.rank only.
func (c *Comm) Labels() pprof.LabelSet {
	name := c.Name()
	if name == "" {
		name = c.ID().String()
	}
	return pprof.Labels(assembly.LabelRank, strconv.Itoa(int(c.session.process.identity.Proc.Rank)),
		labelComm, name, labelCommRank, strconv.Itoa(c.rank))
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

// Close closes the communicator (MPI_Comm_free). Each member calls it, at any time. It does not block. Pending operations still complete, including
// nonblocking collectives and partitioned operations. Messages that were not received are dropped, and synchronous sends of such messages fail with
// ErrTransport. The attributes are deleted in reverse order. After Close, all methods return ErrClosed, including a second Close. So does a deferred
// Close during a panic from within a call of this package.
func (c *Comm) Close() error {
	if err := c.rankState.engine.Check(); err != nil {
		return err
	}
	if c.stateBits.Or(stateClosed)&stateClosed != 0 {
		return c.errClosed()
	}
	if c.threadRank != nil {
		c.threadRank.activation.awaitAbandoned()
	}
	c.closeAgreements()
	c.collective.Close()
	c.pendingEndings.Store(3) // Collectives, partitioned operations, and the next lines.
	if !c.collective.Closing() {
		c.pendingEndings.Add(-1)
	}
	if !c.partitions.closing(c) {
		c.pendingEndings.Add(-1)
	}
	if c.pendingEndings.Add(-1) > 0 {
		c.session.ends(1)
	} else {
		c.freeResources()
	}
	c.session.drop(&c.session.commCount)
	c.mu.Lock()
	attrs, contexts := c.attrs, c.contexts
	c.attrs, c.contexts = nil, nil
	c.mu.Unlock()
	for d := range contexts {
		_ = d.Close() // ErrClosed after the Free of its operation.
	}
	deleteAttrs(attrs)
	return nil
}

// endPart ends one of the parts for which the end of a closed communicator waits, which ends with the last one.
func (c *Comm) endPart() {
	if c.pendingEndings.Add(-1) == 0 {
		c.freeResources()
		c.session.ends(-1)
	}
}

// freeResources frees the resources of a closed communicator, when none of its collectives or partitioned operations is
// active.
func (c *Comm) freeResources() {
	e := c.session.process
	local := len(c.ranksOfProcess(e.Env().Self))
	e.mu.Lock()
	delete(e.openComms, c.key())
	e.absence.close(c.key(), local)
	if e.absence.allClosed(c.spec.ID) {
		e.earlyRevocations.drop(c.spec.ID)
	}
	e.mu.Unlock()
	c.pml.Close()
	if c.threadRank != nil {
		c.threadRank.remove(c)
	}
	c.collective.CloseInstances()
}

func (c *Comm) errClosed() error { return fmt.Errorf("%w: the communicator is closed", ErrClosed) }

// Transport is how messages to one member travel.
type Transport struct {
	// Point-to-point layer, for example "ob1".
	PML string
	// Transport below the PML, for example "shm". Empty if none reaches the member.
	Component string
	// For example "/dev/shm/...".
	Device string
	// Provider of the fabric below an MTL.
	Provider string
}

// Transport returns the transport of messages to a member, also before the first message. It returns ErrRank for a rank out of range.
func (c *Comm) Transport(rank int) (Transport, error) {
	if c.isClosed() {
		return Transport{}, c.errClosed()
	}
	if rank < 0 || rank >= c.size {
		return Transport{}, c.errRank(rank)
	}
	incarnation := c.spec.Members.Member(rank).Incarnation
	if c.threadRank != nil && incarnation == c.session.process.Env().Self {
		r := c.threadRank.activation.threadComm.team.Route(incarnation)
		return Transport{PML: r.PML, Component: r.Transport, Device: r.Device}, nil
	}
	r := c.module.Route(incarnation)
	return Transport{PML: c.module.Name, Component: r.Transport, Device: r.Device, Provider: r.Provider}, nil
}
