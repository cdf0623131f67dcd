package threads

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework"
)

// Instance is the part of one rank in a team. It implements coll.Instance.
type Instance struct {
	layout    *layout
	team      *team
	localRank int

	env  coll.Env
	card []byte
	// Ends the sharing of t. Nil in members that do not share it.
	endShare func()
	// Releases the bell.
	releaseBell func()

	// Latest phase in which this rank has arrived. Only the steps of pendingOps[0] change it.
	arrivedPhase uint32
	// Sum of the checksums of its arrivals.
	checksumTotal uint64
	// Latest phase in which all ranks are known to have posted, if flat.
	knownPhase uint32
	// Local rank whose post is awaited next in this phase, if flat.
	nextAwaited int
	// Operations that have begun here, in order.
	pendingOps []pendingOp
	// Whether work has stopped because a member has withdrawn its slices.
	isLost bool
}

// pendingOp is a pending operation.
type pendingOp struct {
	sequence   uint32
	opCode     uint32
	totalBytes uint64
}

var (
	errNoHeap    = errors.New("the ranks of the process do not share its heap: several ranks need one engine")
	errWithdrawn = errors.New("another rank of this process has withdrawn from the operation")
)

// open opens the part of a rank. The lowest rank of a process creates the team.
func (l *layout) open(env coll.Env) (coll.Instance, error) {
	x := &Instance{layout: l, localRank: l.Index(env.Rank), env: env}
	ranks := l.Ranks(l.Node(env.Rank))
	if x.localRank > 0 {
		return x, nil
	}
	x.team = newTeam(ranks)
	if len(ranks) > 1 {
		h, ok := framework.As[coll.Heap](env.Node)
		if !ok {
			return nil, errNoHeap
		}
		var number uint32
		number, x.endShare = h.Share(x.team)
		x.card = binary.LittleEndian.AppendUint32(nil, number)
	}
	return x, nil
}

// Card implements coll.Instance. It has the number of the team.
func (x *Instance) Card() []byte { return x.card }

// Join implements coll.Instance.
func (x *Instance) Join(cards [][]byte) error {
	ranks := x.layout.Ranks(x.layout.Node(x.env.Rank))
	if len(ranks) == 1 {
		return nil
	}
	if x.localRank > 0 {
		h, ok := framework.As[coll.Heap](x.env.Node)
		if !ok {
			return errNoHeap
		}
		card := cards[0]
		if len(card) != 4 {
			return fmt.Errorf("rank %d: invalid card of %d bytes", ranks[0], len(card))
		}
		v, err := h.Shared(ranks[0], binary.LittleEndian.Uint32(card))
		if err != nil {
			return err
		}
		t, ok := v.(*team)
		if !ok || len(t.ranks) != len(ranks) {
			return fmt.Errorf("rank %d shares no team of %d ranks", ranks[0], len(ranks))
		}
		x.team = t
	}
	bell, leave, err := x.env.Node.Bell(x.env.Rank)
	if err != nil {
		return err
	}
	x.team.members[x.localRank].bell, x.releaseBell = bell, leave
	return nil
}

// Activate implements coll.Instance.
func (x *Instance) Activate() { x.endSharing() }

func (x *Instance) endSharing() {
	if x.endShare != nil {
		x.endShare()
		x.endShare = nil
	}
}

// Memory implements coll.Instance. Steps use no memory of the instance.
func (x *Instance) Memory() []byte { return nil }

// Close implements coll.Instance.
func (x *Instance) Close() {
	x.endSharing()
	if x.releaseBell != nil {
		x.releaseBell()
		x.releaseBell = nil
	}
	x.team = nil
}

// Withdraw implements coll.Withdrawer. After the first call no rank starts to use the slices of
// another one. The rank waits for those that are using slices.
func (x *Instance) Withdraw(*coll.Call) bool {
	t := x.team
	t.isAborted.Store(true)
	if t.isQuiet.Load() {
		return true
	}
	for i := range t.workingFlags {
		if t.workingFlags[i].value.Load() != 0 {
			return false
		}
	}
	t.isQuiet.Store(true)
	return true
}
