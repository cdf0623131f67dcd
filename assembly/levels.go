package assembly

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ferrympi/ferry/assembly/wireup"
	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// layout returns the layout of a group that is wired up in levels, or nil for a single construct. The result is equal in all members if their
// maps, groups and values of bootstrap.roots_from are.
func (a *Assembly) layout(ctx context.Context, group []framework.Proc) (*wireup.Layout, error) {
	if len(group) < max(a.bootstrapParams.RootsFrom, 2) {
		return nil, nil
	}
	if _, needsAll := framework.As[bootstrap.Bystander](a.client); needsAll {
		return nil, nil
	}
	nodes, err := bootstrap.NodeMapOf(ctx, a.client)
	if err != nil {
		return nil, err
	}
	identity := a.client.Identity()
	layout := wireup.NewLayout(framework.ProcsOf(group...), identity.Proc.Namespace, nodes)
	if layout == nil {
		if bootstrap.FirstReport(identity.Proc, "communicator without levels") {
			a.env.Logger.Info("a large communicator is created without levels, because the launcher has no map of the nodes of its members", "members", len(group))
		}
		return nil, nil
	}
	if layout.Nodes() < 2 {
		return nil, nil
	}
	return layout, nil
}

// wireUpLevels is WireUp in levels.
func (a *Assembly) wireUpLevels(ctx context.Context, layout *wireup.Layout, group []framework.Proc, rank int, tag string, policy cid.Policy) (m PML, spec pml.CommSpec, err error) {
	if policy == cid.Auto {
		policy = cid.PolicyAgree // The decision has the same size for any number of members.
	}
	p := &levelPort{Assembly: a, ctx: ctx, layout: layout, group: group, rank: rank, startedAt: time.Now(), levelKey: layout.Key(tag, a.bootstrapParams.RootsFrom)}
	table := a.pmls[0].CIDs()
	p.candidateIDs = table.WithholdCandidates(policy, len(group), levelsRoom)
	p.endedMembers = a.disconnectedMembers(group)
	defer table.Release(p.candidateIDs) // No effect after the ids are settled.
	defer p.close()
	t, err := wireup.Create(p, wireup.Call{Layout: layout, Member: rank, UserTag: tag, Timeout: a.bootstrapParams.Timeout})
	if err == nil {
		if err = p.reconnect(t); err != nil {
			a.refuse(cid.Extended{Base: t.ID()}, group, err)
		}
	}
	if err != nil {
		if p.commSpec.Local.Valid() {
			p.chosenPML.CIDs().Close(p.commSpec.Local)
		}
		return m, spec, err
	}
	a.timing.mark(stepComm)
	a.saveRoutes(p.memberTable)
	return p.chosenPML, p.commSpec, nil
}

// levelsRoom is the room for the candidate ids of a group, and levelRoom for those of a level, which is in use for a short time.
const (
	levelsRoom = 1 << 10
	levelRoom  = 24
)

// levelPort is the wireup.Port of a creation.
type levelPort struct {
	*Assembly
	ctx       context.Context
	layout    *wireup.Layout
	group     []framework.Proc
	rank      int
	startedAt time.Time
	// Part of the tags of the levels.
	levelKey     uint64
	candidateIDs *cid.Candidates
	endedMembers []wireup.Ended

	nodeRoot    framework.Incarnation
	sharedAreas []*btl.Area

	// The result; see Accept.
	chosenPML   PML
	commSpec    pml.CommSpec
	memberTable *nodeTable
}

// remaining returns the time until a deadline of the creation. It is positive even after the deadline, so that a late process gets an answer.
func (p *levelPort) remaining(deadline time.Duration) time.Duration {
	return max(deadline-time.Since(p.startedAt), p.bootstrapParams.Timeout/64)
}

func (p *levelPort) Ended() error {
	return framework.Ended(p.ctx, "group construct", context.Cause(p.ctx))
}

func (p *levelPort) Construct(l wireup.Level, faults wireup.Faults, deadline time.Duration) (wireup.Comm, [][]byte, error) {
	extra := wireup.Payload{Faults: faults}
	if l.Number == 0 {
		extra.GroupIDs, extra.GroupEnded = p.candidateIDs.Bytes(), p.endedMembers
	}
	if len(l.Members) == 1 {
		own, err := p.currentCard()
		if err != nil {
			return nil, nil, err
		}
		b, err := p.encodePayload(own, extra)
		return nil, [][]byte{b}, err
	}
	members := make([]framework.Proc, len(l.Members))
	for i, member := range l.Members {
		members[i] = p.group[member]
	}
	tag := fmt.Sprintf("\x00level %d %016x", l.Number, p.levelKey)
	ctx := bootstrap.WithTimeout(p.ctx, p.remaining(deadline))
	m, spec, payloads, err := p.wireUp(ctx, members, l.SelfIndex, tag, func(room int) *cid.Candidates {
		return p.pmls[0].CIDs().WithholdCandidates(cid.PolicyAgree, len(members), min(room, levelRoom))
	}, extra)
	if err != nil {
		return nil, nil, err
	}
	spec.Name = fmt.Sprintf("level %d of a creation", l.Number)
	comm, err := m.AddComm(spec)
	if err != nil {
		m.CIDs().Close(spec.Local)
		p.refuse(spec.ID, members, err)
		return nil, nil, err
	}
	if l.Number == 0 {
		p.nodeRoot = spec.Members.Member(0).Incarnation
	}
	p.timing.mark(fmt.Sprintf("level %d is connected", l.Number))
	return &levelComm{port: p, pmlComm: comm}, payloads, nil
}

func (p *levelPort) Draw() (uint64, error) {
	made, err := p.Assembly.Construct(p.ctx, p.group[p.rank:p.rank+1], "\x00base", nil)
	return made.ContextID, err
}

// errNoMemory reports that no transport shares memory.
var errNoMemory = errors.New("no transport of this process shares memory")

func (p *levelPort) Share(table []byte) (shared, place []byte, err error) {
	sharer, _ := p.Sharer()
	if sharer == nil {
		return nil, nil, errNoMemory
	}
	area, err := sharer.NewArea(len(table))
	if err != nil {
		p.env.Logger.Info("the table of a communicator is sent to each process of the node, because there is no shared memory for it", "bytes", len(table), "err", err)
		return nil, nil, err
	}
	p.sharedAreas = append(p.sharedAreas, area)
	copy(area.Bytes, table)
	place = binary.LittleEndian.AppendUint32(nil, area.Number)
	return area.Bytes[:len(table)], binary.LittleEndian.AppendUint64(place, uint64(len(table))), nil
}

func (p *levelPort) Open(root wireup.Level, place []byte) ([]byte, error) {
	sharer, component := p.Sharer()
	if sharer == nil {
		return nil, errNoMemory
	}
	if len(place) != 12 {
		return nil, fmt.Errorf("the place of a table has %d bytes", len(place))
	}
	size := binary.LittleEndian.Uint64(place[4:])
	if size > uint64(p.layout.Size()+1)*wireup.MaxMember {
		return nil, fmt.Errorf("a table of %d bytes", size)
	}
	peer, err := p.Peer(p.nodeRoot, component)
	if err != nil {
		return nil, err
	}
	area, err := sharer.OpenArea(peer, binary.LittleEndian.Uint32(place), int(size))
	if err != nil {
		return nil, err
	}
	p.sharedAreas = append(p.sharedAreas, area)
	return area.Bytes[:size], nil
}

func (p *levelPort) Hide() {
	for _, area := range p.sharedAreas {
		area.Hide()
	}
}

// close frees the memory of a table that no communicator has.
func (p *levelPort) close() {
	for _, area := range p.sharedAreas {
		area.Close()
	}
}

func (p *levelPort) Refuse(id uint64, why error) { p.refuse(cid.Extended{Base: id}, p.group, why) }

// reconnect reconnects the pairs of the table that contain this process. All processes of any pair make a second construct.
func (p *levelPort) reconnect(t *wireup.Table) error {
	pairs := t.Decision().ReconnectPairs
	var ranks []int // In the group, of those that are in a pair.
	for _, pair := range pairs {
		ranks = append(ranks, int(pair.LowerRank), int(pair.HigherRank))
	}
	slices.Sort(ranks)
	ranks = slices.Compact(ranks)
	self, isIn := slices.BinarySearch(ranks, p.rank)
	if !isIn {
		return nil
	}
	index := func(rank uint32) int { i, _ := slices.BinarySearch(ranks, int(rank)); return i }
	with := map[int]framework.Incarnation{}
	for _, pair := range pairs {
		other := pair.LowerRank
		if int(pair.LowerRank) == p.rank {
			other = pair.HigherRank
		} else if int(pair.HigherRank) != p.rank {
			continue
		}
		with[index(other)] = p.memberTable.Member(int(other)).Incarnation
		p.beginEpoch(p.memberTable.Member(int(other)).Incarnation, pair.ReconnectCount)
	}
	var group []framework.Proc
	for _, rank := range ranks {
		group = append(group, p.group[rank])
	}
	byPeer, err := p.exchangeDisconnects(p.ctx, group, self, t.ID(), with)
	for i, incarnation := range with {
		p.awaitPastDisconnects(p.ctx, incarnation, byPeer[i])
	}
	for i := range with {
		if err != nil {
			break
		}
		var r wireup.Record
		if r, err = t.Record(ranks[i], nil); err == nil {
			err = p.learnRecord(ranks[i], r)
		}
	}
	return err
}

// levelComm is the wireup.Comm of a level, on the control plane.
type levelComm struct {
	port    *levelPort
	pmlComm pml.Comm
}

// levelTag is the tag of all messages of a level.
const levelTag = 1

func (c *levelComm) Send(to int, message []byte) {
	r, err := c.pmlComm.Isend(pml.Buffer{Bytes: message}, to, levelTag, pml.Control, pml.Standard)
	if err == nil {
		err = r.Free(r.Generation())
	}
	if err != nil {
		c.port.env.Logger.Debug("a message of a creation cannot be sent", "to", to, "err", err)
	}
}

func (c *levelComm) Receive(from int, deadline time.Duration, isCancelable bool) ([]byte, error) {
	ctx := c.port.ctx
	if !isCancelable {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, c.port.remaining(deadline))
	defer cancel()
	// The other processes of the node are at work when this one waits, and need its processor.
	claimed, st, err := c.pmlComm.Mprobe(progress.LongWait(ctx), from, levelTag, pml.Control)
	if err != nil {
		return nil, framework.Ended(ctx, "wire-up", err)
	}
	if most := c.port.layout.Size()*wireup.MaxMember + maxMessage; st.Bytes > most {
		return nil, fmt.Errorf("%w: a message of %d bytes, at most %d", framework.ErrTransport, st.Bytes, most)
	}
	b := make([]byte, st.Bytes)
	_, err = claimed.Recv(ctx, pml.Buffer{Bytes: b})
	return b, framework.Ended(ctx, "wire-up", err)
}

func (c *levelComm) Close() { c.pmlComm.Close() }

// maxMessage is the largest message of a creation, but for the records of the members.
const maxMessage = 32 << 20
