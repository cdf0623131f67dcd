package threads

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework"
)

// Instance is one rank's part in a team. It implements coll.Instance.
type Instance struct {
	l    *layout
	t    *team
	seat int

	env     coll.Env
	card    []byte
	release func() // Ends the sharing of t; nil in the members that do not share it.
	leave   func() // Releases the bell.

	round  uint32 // The last round in which this rank has arrived. Changed by the steps of queue[0] only.
	sum    uint64 // Of the checksums of its arrivals.
	known  uint32 // The last round in which all are known to have posted; flat only.
	next   int    // Seat whose post in this round is awaited next; flat only.
	queue  []op   // Operations that have begun here, in order.
	isLost bool   // Work has stopped since a member withdrew its slices.
}

// op is an operation under way.
type op struct {
	turn  uint32
	code  uint32
	total uint64
}

var (
	errNoHeap = errors.New("the ranks of a process do not share its heap: a process needs several ranks in one engine")
	errLost   = errors.New("another rank of this process has left the operation")
)

// open opens a rank's part. The lowest rank of a process makes the team.
func (l *layout) open(env coll.Env) (coll.Instance, error) {
	x := &Instance{l: l, seat: l.Index(env.Rank), env: env}
	ranks := l.Ranks(l.Node(env.Rank))
	if x.seat > 0 {
		return x, nil
	}
	x.t = newTeam(ranks)
	if len(ranks) > 1 {
		h, ok := framework.As[coll.Heap](env.Node)
		if !ok {
			return nil, errNoHeap
		}
		var number uint32
		number, x.release = h.Share(x.t)
		x.card = binary.LittleEndian.AppendUint32(nil, number)
	}
	return x, nil
}

// Card implements coll.Instance. It contains the number of the team.
func (x *Instance) Card() []byte { return x.card }

// Join implements coll.Instance.
func (x *Instance) Join(cards [][]byte) error {
	ranks := x.l.Ranks(x.l.Node(x.env.Rank))
	if len(ranks) == 1 {
		return nil
	}
	if x.seat > 0 {
		h, ok := framework.As[coll.Heap](x.env.Node)
		if !ok {
			return errNoHeap
		}
		card := cards[0]
		if len(card) != 4 {
			return fmt.Errorf("rank %d: a card of %d bytes", ranks[0], len(card))
		}
		v, err := h.Shared(ranks[0], binary.LittleEndian.Uint32(card))
		if err != nil {
			return err
		}
		t, ok := v.(*team)
		if !ok || len(t.ranks) != len(ranks) {
			return fmt.Errorf("rank %d shares no team of %d ranks", ranks[0], len(ranks))
		}
		x.t = t
	}
	bell, leave, err := x.env.Node.Bell(x.env.Rank)
	if err != nil {
		return err
	}
	x.t.seats[x.seat].bell, x.leave = bell, leave
	return nil
}

// Agreed implements coll.Instance.
func (x *Instance) Agreed() { x.endSharing() }

func (x *Instance) endSharing() {
	if x.release != nil {
		x.release()
		x.release = nil
	}
}

// Memory implements coll.Instance. Steps name no memory of the instance.
func (x *Instance) Memory() []byte { return nil }

// Close implements coll.Instance.
func (x *Instance) Close() {
	x.endSharing()
	if x.leave != nil {
		x.leave()
		x.leave = nil
	}
	x.t = nil
}

// Withdraw implements coll.Withdrawer. From then on no rank begins to use another one's slices.
// The rank waits for those that are using slices.
func (x *Instance) Withdraw(*coll.Call) bool {
	t := x.t
	t.isAborted.Store(true)
	if t.isQuiet.Load() {
		return true
	}
	for i := range t.working {
		if t.working[i].v.Load() != 0 {
			return false
		}
	}
	t.isQuiet.Store(true)
	return true
}
