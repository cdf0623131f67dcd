package pmltest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/pml"
)

// A Plan is a random program for several processes. MPI defines its outcome for any stack and timing, that
// is, the message that each receive matches, and its status (MPI-4.1 section 3.5). The metamorphic runner
// runs one plan over many stacks.
//
// A plan has phases. In each, every rank creates the communicators that start there, starts its nonblocking
// operations, performs the blocking ones in an order that all ranks share (so that they do not deadlock),
// waits for the operations that it has started, and closes the communicators that end there. Only an
// explicit barrier keeps ranks in the same phase.
type Plan struct {
	Seed   uint64
	Ranks  int
	Comms  []PlanComm
	Phases []PlanPhase
}

// PlanComm is a communicator of a plan.
type PlanComm struct {
	// Ranks in the world, in the order of the communicator.
	Members []int
	// First and last phase.
	Born, Dies int
	// IsDup is set if each member creates it at its own time, and members exchange their indices by
	// messages. Otherwise the members decide together, with the stack's policy.
	IsDup bool
	// HasStrays is set if messages may stay without a receive. No receive uses any tag then.
	HasStrays bool
	// HasOneSender is set if only its rank 0 sends. Receives may use any source then.
	HasOneSender bool
}

// PlanPhase is one phase of a plan.
type PlanPhase struct {
	// A barrier of all ranks comes before it.
	Barrier bool
	Classes []PlanClass
	Events  []PlanEvent
}

// PlanStyle is the kind of patterns of receives. Each allows one outcome only.
type PlanStyle int

const (
	// Exact receives have a source and a tag.
	Exact PlanStyle = iota
	// AnyTagOf receives have a source and any tag.
	AnyTagOf
	// AnySourceOf receives have any source and a tag that only one source uses.
	AnySourceOf
	// AnyOf receives have any source and any tag, and only one source sends.
	AnyOf
	styleCount
)

var styleNames = [...]string{"exact", "any tag", "any source", "any source and tag"}

// PlanClass has the messages from one rank to another on one communicator in one phase. Ranks are those of
// the communicator.
type PlanClass struct {
	Comm, From, To         int
	Style                  PlanStyle
	SendsBlock, RecvsBlock bool
	Messages               []PlanMessage
}

// PlanMessage is a message, and the receive with the same index.
type PlanMessage struct {
	// Determines the contents.
	ID   int
	Tag  int
	Size int
	Mode pml.Mode
	// Cut is the number of bytes that the receive's buffer is too short.
	Cut   int
	Probe PlanProbe
	// Positions among the operations that the rank starts, and among its waits.
	SendKey, RecvKey, SendWait, RecvWait int
	// IsStrided is set if sender and receiver have a layout.
	IsStrided bool
	// IsRegistered is set if the sender's memory is allocated by the stack, where possible.
	IsRegistered bool
}

// PlanProbe is the probe before a blocking receive.
type PlanProbe int

const (
	NoProbe PlanProbe = iota
	// Probe calls Probe, and then receives.
	Probe
	// Iprobe calls Iprobe until it finds a message, and then receives.
	Iprobe
	// Mprobe calls Mprobe, and then Recv of the message.
	Mprobe
	// MprobeIrecv calls Mprobe, and then Irecv of the message.
	MprobeIrecv
	// Improbe calls Improbe until it finds a message, and then Recv of it.
	Improbe
	probeCount
)

var probeNames = [...]string{"", "probe", "iprobe", "mprobe", "mprobe+irecv", "improbe"}

// PlanEvent is an operation without a message that arrives.
type PlanEvent struct {
	Kind PlanEventKind
	Comm int
	// Ranks in the communicator.
	Rank, To int
	Size     int
	// Position among the operations that the rank starts.
	Key int
}

// PlanEventKind is the kind of a PlanEvent.
type PlanEventKind int

const (
	// Pause yields the processor.
	Pause PlanEventKind = iota
	// CancelRecv cancels a receive without a match.
	CancelRecv
	// ExpireRecv ends the context of a receive without a match.
	ExpireRecv
	// CancelSend cancels a synchronous send without a match.
	CancelSend
	// ExpireSend ends the context of a synchronous send without a match.
	ExpireSend
	// Stray is a send without a match, whose communicator is closed.
	Stray
	eventCount
)

var eventNames = [...]string{"pause", "cancel receive", "expire receive", "cancel send", "expire send", "stray send"}

// Tags of source s in its communicator are s*tagsPerSource and the next few. The others have no receive that
// a message could match. All are in the range that every network has (MPI-4.1 section
// 9.1.2).
const (
	tagsPerSource = 8
	strayTag      = 1 << 12
	barrierTag    = 1 << 13
)

// planSizes are lengths around the limits of frames, rings and single copies.
var planSizes = []int{0, 1, 8, 39, 40, 41, 63, 64, 65, 500, 4000, 4096, 8100, 8192, 8300, 16384, 33000, 70000, 131072, 300001}

// NewPlan returns the plan of a seed for a number of ranks.
func NewPlan(seed uint64, ranks int) Plan {
	g := &planner{rng: rand.New(rand.NewPCG(seed, uint64(ranks)))}
	g.p = Plan{Seed: seed, Ranks: ranks}
	phases := 3 + g.rng.IntN(6)
	g.comms(phases)
	for i := range phases {
		g.p.Phases = append(g.p.Phases, g.phase(i))
	}
	for i, ph := range g.p.Phases {
		for j := range ph.Events {
			e := &ph.Events[j]
			// The receiver must not close before it has returned the offer. Otherwise a canceled send
			// would complete.
			if (e.Kind == CancelSend || e.Kind == ExpireSend) && !slices.ContainsFunc(
				g.p.Phases[i+1:g.p.Comms[e.Comm].Dies+1], func(ph PlanPhase) bool { return ph.Barrier }) {
				e.Kind = Stray
			}
			// A communicator stays open until its own sends complete. Two members that wait for each
			// other's receiver to close would deadlock.
			if e.Kind == Stray && e.Rank >= e.To {
				e.Kind = Pause
			}
		}
	}
	return g.p
}

type planner struct {
	rng         *rand.Rand
	p           Plan
	nextMessage int
}

func (g *planner) one(n int) bool { return g.rng.IntN(n) == 0 }

// comms creates the communicators. The first has all ranks and stays open throughout.
func (g *planner) comms(phases int) {
	all := make([]int, g.p.Ranks)
	for i := range all {
		all[i] = i
	}
	g.p.Comms = []PlanComm{{Members: all, Dies: phases - 1}}
	for range 2 + g.rng.IntN(6) {
		born := g.rng.IntN(phases)
		members := slices.Clone(all)
		if g.one(2) { // A split.
			g.rng.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
			members = members[:1+g.rng.IntN(len(members))]
		}
		g.p.Comms = append(g.p.Comms, PlanComm{
			Members: members, Born: born, Dies: born + g.rng.IntN(phases-born), IsDup: g.one(2), HasStrays: g.one(3), HasOneSender: g.one(4)})
	}
}

func (g *planner) phase(at int) PlanPhase {
	ph := PlanPhase{Barrier: at > 0 && g.one(3)} // There is no communicator before the first phase.
	for i, c := range g.p.Comms {
		if at < c.Born || at > c.Dies {
			continue
		}
		for from := range c.Members {
			for to := range c.Members {
				if g.one(2) && (from == 0 || !c.HasOneSender) {
					ph.Classes = append(ph.Classes, g.class(i, from, to))
				}
			}
		}
		for range g.rng.IntN(4) {
			e := PlanEvent{Kind: PlanEventKind(g.rng.IntN(int(eventCount))), Comm: i, Key: g.rng.IntN(1000), Size: g.size(),
				Rank: g.rng.IntN(len(c.Members)), To: g.rng.IntN(len(c.Members))}
			if e.Kind >= CancelSend && !c.HasStrays {
				e.Kind = Pause
			}
			ph.Events = append(ph.Events, e)
		}
	}
	return ph
}

func (g *planner) class(comm, from, to int) PlanClass {
	k := PlanClass{Comm: comm, From: from, To: to, Style: PlanStyle(g.rng.IntN(int(styleCount) - 1)), SendsBlock: g.one(2), RecvsBlock: g.one(2)}
	c := g.p.Comms[comm]
	switch {
	case c.HasStrays && k.Style == AnyTagOf:
		k.Style = Exact
	case c.HasOneSender && !c.HasStrays && g.one(2):
		k.Style = AnyOf
	}
	if from == to && k.RecvsBlock {
		k.SendsBlock = false // A rank cannot block in both.
	}
	for range 1 + g.rng.IntN(6) {
		m := PlanMessage{
			ID: g.nextMessage, Tag: from*tagsPerSource + g.rng.IntN(3), Size: g.size(), IsStrided: g.one(8), IsRegistered: g.one(6),
			SendKey: g.rng.IntN(1000), RecvKey: g.rng.IntN(1000), SendWait: g.rng.IntN(1000), RecvWait: g.rng.IntN(1000),
		}
		g.nextMessage++
		if g.one(4) {
			m.Mode = pml.Synchronous
		}
		if g.one(8) {
			m.Cut = 1 + g.rng.IntN(m.Size+1)
		}
		if k.RecvsBlock {
			m.Probe = PlanProbe(g.rng.IntN(int(probeCount)))
		}
		k.Messages = append(k.Messages, m)
	}
	return k
}

func (g *planner) size() int {
	if g.one(100) {
		return 3<<20 + 17
	}
	return planSizes[g.rng.IntN(len(planSizes))] + g.rng.IntN(3)
}

// String returns the list of operations.
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "plan of seed %d for %d ranks\n", p.Seed, p.Ranks)
	for i, c := range p.Comms {
		how := "decided together"
		if c.IsDup {
			how = "dup"
		}
		fmt.Fprintf(&b, "  communicator %d: ranks %v, phases %d to %d, %s\n", i, c.Members, c.Born, c.Dies, how)
	}
	for i, ph := range p.Phases {
		fmt.Fprintf(&b, "  phase %d (barrier before it: %t)\n", i, ph.Barrier)
		for _, k := range ph.Classes {
			fmt.Fprintf(&b, "    communicator %d, %d to %d, %s, sends block: %t, receives block: %t\n", k.Comm, k.From, k.To, styleNames[k.Style], k.SendsBlock, k.RecvsBlock)
			for _, m := range k.Messages {
				fmt.Fprintf(&b, "      message %d: tag %d, %d bytes, synchronous: %t, layout: %t, registered: %t, cut: %d, keys %d %d %d %d %s\n",
					m.ID, m.Tag, m.Size, m.Mode == pml.Synchronous, m.IsStrided, m.IsRegistered, m.Cut, m.SendKey, m.RecvKey, m.SendWait, m.RecvWait, probeNames[m.Probe])
			}
		}
		for _, e := range ph.Events {
			fmt.Fprintf(&b, "    %s: communicator %d, rank %d to %d, %d bytes, key %d\n", eventNames[e.Kind], e.Comm, e.Rank, e.To, e.Size, e.Key)
		}
	}
	return b.String()
}
