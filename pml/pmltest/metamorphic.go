package pmltest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/pml"
)

// A Plan is a random program for several processes whose outcome follows from
// what MPI says, whatever the stack and the timing: which receive gets which
// message, with which status (MPI-4.1 section 3.5). The metamorphic runner runs
// one plan over many stacks.
//
// A plan goes by phases. In each, every rank makes the communicators that begin
// there, starts what does not block, does what blocks in the one order that all
// ranks share (so that nothing deadlocks), waits for what it has started, and
// closes the communicators that end. Nothing but an explicit barrier keeps ranks
// in the same phase.
type Plan struct {
	Seed   uint64
	Ranks  int
	Comms  []PlanComm
	Phases []PlanPhase
}

// PlanComm is a communicator of a plan.
type PlanComm struct {
	Members    []int // ranks in the world, in the order of the communicator
	Born, Dies int   // phases; it lives in both
	// Dup: each member makes it in its own time, and all learn the others' indices
	// by messages. Otherwise the members decide together, by the stack's policy.
	Dup bool
	// Strays says that messages may stay without a receive: then no receive takes
	// any tag.
	Strays bool
	// Sole says that only its rank 0 sends: then receives may take any source.
	Sole bool
}

// PlanPhase is what happens between two points in a rank's program.
type PlanPhase struct {
	Barrier bool // all ranks meet before it
	Classes []PlanClass
	Events  []PlanEvent
}

// PlanStyle says which patterns receives have. Each allows one outcome only.
type PlanStyle int

// The styles.
const (
	Exact       PlanStyle = iota // source and tag
	AnyTagOf                     // one source, any tag
	AnySourceOf                  // any source, with a tag that only one source uses
	AnyOf                        // any source and tag, where only one source sends
	styles                       // their number
)

var styleNames = [...]string{"exact", "any tag", "any source", "any source and tag"}

// PlanClass is the messages from one rank to another on one communicator in one
// phase. Ranks are those of the communicator.
type PlanClass struct {
	Comm, From, To         int
	Style                  PlanStyle
	SendsBlock, RecvsBlock bool
	Messages               []PlanMessage
}

// PlanMessage is a message and the receive that stands in the same place.
type PlanMessage struct {
	ID   int // contents
	Tag  int
	Size int
	Mode pml.Mode
	Cut  int // bytes by which the receive's buffer is too short
	Look PlanLook
	// Places among what the rank starts, and among what it waits for.
	SendKey, RecvKey, SendWait, RecvWait int
	Strided                              bool // sender and receiver have a layout
	Registered                           bool // the sender has it in memory of the stack's own, where there is such
}

// PlanLook is what comes before a blocking receive.
type PlanLook int

// The looks.
const (
	NoLook      PlanLook = iota
	Probe                // Probe, then the receive
	Iprobe               // Iprobe until there is something, then the receive
	Mprobe               // Mprobe, then Recv of the message
	MprobeIrecv          // Mprobe, then Irecv of the message
	Improbe              // Improbe until there is something, then Recv of it
	looks                // their number
)

var lookNames = [...]string{"", "probe", "iprobe", "mprobe", "mprobe+irecv", "improbe"}

// PlanEvent is something without a message that arrives.
type PlanEvent struct {
	Kind     PlanEventKind
	Comm     int
	Rank, To int // in the communicator
	Size     int
	Key      int // place among what the rank starts
}

// PlanEventKind is what happens.
type PlanEventKind int

// The events.
const (
	Pause      PlanEventKind = iota // the rank lets others run
	CancelRecv                      // a receive that nothing matches is canceled
	ExpireRecv                      // a receive that nothing matches, whose context has ended
	CancelSend                      // a synchronous send that nothing matches is canceled
	ExpireSend                      // likewise with a context that has ended
	Stray                           // a send that nothing matches; its communicator is closed over it
	events                          // their number
)

var eventNames = [...]string{"pause", "cancel receive", "expire receive", "cancel send", "expire send", "stray send"}

// Tags: those of source s in its communicator are s*tagsPerSource and the next
// few; the others have no receive that a message could match. All are in the range that every
// network has (MPI-4.1 section 9.1.2).
const (
	tagsPerSource = 8
	strayTag      = 1 << 12
	barrierTag    = 1 << 13
)

// planSizes are around the limits of frames, rings and single copies.
var planSizes = []int{0, 1, 8, 39, 40, 41, 63, 64, 65, 500, 4000, 4096, 8100, 8192, 8300, 16384, 33000, 70000, 131072, 300001}

// NewPlan makes the plan of a seed for a number of ranks.
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
			// The receiver must not close before it has given the offer back: a canceled
			// send would be complete instead.
			if (e.Kind == CancelSend || e.Kind == ExpireSend) && !slices.ContainsFunc(
				g.p.Phases[i+1:g.p.Comms[e.Comm].Dies+1], func(ph PlanPhase) bool { return ph.Barrier }) {
				e.Kind = Stray
			}
			// A communicator stays until its own sends are complete: two that wait for
			// each other's receiver to close would wait for ever.
			if e.Kind == Stray && e.Rank >= e.To {
				e.Kind = Pause
			}
		}
	}
	return g.p
}

type planner struct {
	rng  *rand.Rand
	p    Plan
	next int // message
}

func (g *planner) one(n int) bool { return g.rng.IntN(n) == 0 }

// comms makes the communicators. The first has all ranks and lives throughout.
func (g *planner) comms(phases int) {
	all := make([]int, g.p.Ranks)
	for i := range all {
		all[i] = i
	}
	g.p.Comms = []PlanComm{{Members: all, Dies: phases - 1}}
	for range 2 + g.rng.IntN(6) {
		born := g.rng.IntN(phases)
		members := slices.Clone(all)
		if g.one(2) { // a split
			g.rng.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
			members = members[:1+g.rng.IntN(len(members))]
		}
		g.p.Comms = append(g.p.Comms, PlanComm{
			Members: members, Born: born, Dies: born + g.rng.IntN(phases-born), Dup: g.one(2), Strays: g.one(3), Sole: g.one(4)})
	}
}

func (g *planner) phase(at int) PlanPhase {
	ph := PlanPhase{Barrier: at > 0 && g.one(3)} // nobody has a communicator before the first
	for i, c := range g.p.Comms {
		if at < c.Born || at > c.Dies {
			continue
		}
		for from := range c.Members {
			for to := range c.Members {
				if g.one(2) && (from == 0 || !c.Sole) {
					ph.Classes = append(ph.Classes, g.class(i, from, to))
				}
			}
		}
		for range g.rng.IntN(4) {
			e := PlanEvent{Kind: PlanEventKind(g.rng.IntN(int(events))), Comm: i, Key: g.rng.IntN(1000), Size: g.size(),
				Rank: g.rng.IntN(len(c.Members)), To: g.rng.IntN(len(c.Members))}
			if e.Kind >= CancelSend && !c.Strays {
				e.Kind = Pause
			}
			ph.Events = append(ph.Events, e)
		}
	}
	return ph
}

func (g *planner) class(comm, from, to int) PlanClass {
	k := PlanClass{Comm: comm, From: from, To: to, Style: PlanStyle(g.rng.IntN(int(styles) - 1)), SendsBlock: g.one(2), RecvsBlock: g.one(2)}
	c := g.p.Comms[comm]
	switch {
	case c.Strays && k.Style == AnyTagOf:
		k.Style = Exact
	case c.Sole && !c.Strays && g.one(2):
		k.Style = AnyOf
	}
	if from == to && k.RecvsBlock {
		k.SendsBlock = false // it can't do both at the same time
	}
	for range 1 + g.rng.IntN(6) {
		m := PlanMessage{
			ID: g.next, Tag: from*tagsPerSource + g.rng.IntN(3), Size: g.size(), Strided: g.one(8), Registered: g.one(6),
			SendKey: g.rng.IntN(1000), RecvKey: g.rng.IntN(1000), SendWait: g.rng.IntN(1000), RecvWait: g.rng.IntN(1000),
		}
		g.next++
		if g.one(4) {
			m.Mode = pml.Synchronous
		}
		if g.one(8) {
			m.Cut = 1 + g.rng.IntN(m.Size+1)
		}
		if k.RecvsBlock {
			m.Look = PlanLook(g.rng.IntN(int(looks)))
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

// String lists the operations.
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "plan of seed %d for %d ranks\n", p.Seed, p.Ranks)
	for i, c := range p.Comms {
		how := "decided together"
		if c.Dup {
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
					m.ID, m.Tag, m.Size, m.Mode == pml.Synchronous, m.Strided, m.Registered, m.Cut, m.SendKey, m.RecvKey, m.SendWait, m.RecvWait, lookNames[m.Look])
			}
		}
		for _, e := range ph.Events {
			fmt.Fprintf(&b, "    %s: communicator %d, rank %d to %d, %d bytes, key %d\n", eventNames[e.Kind], e.Comm, e.Rank, e.To, e.Size, e.Key)
		}
	}
	return b.String()
}
