package wireuptest

import (
	"container/heap"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/ferrympi/ferry/assembly/wireup"
	"github.com/ferrympi/ferry/cid"
)

// world is a running job.
type world struct {
	Job
	layout *wireup.Layout
	procs  []*process
	// All ranks in the group.
	all        []int
	faults     map[int]Fault
	events     events
	sequence   uint64
	constructs map[constructKey]*construct
	// Tables by node root.
	shared map[int][]byte
	drawn  uint64 // Last context id.
	live   int
}

// event is a function that runs at a time. Events of one time run in the order of their creation.
type event struct {
	at       time.Duration
	sequence uint64
	run      func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].sequence < e[j].sequence
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	(*e)[len(*e)-1].run = nil
	*e = (*e)[:len(*e)-1]
	return last
}

func newWorld(j Job) *world {
	w := &world{Job: j, layout: wireup.NewLayout(j.Group, Namespace, j.Nodes), faults: map[int]Fault{}, constructs: map[constructKey]*construct{}, shared: map[int][]byte{}, drawn: 100}
	if w.layout == nil {
		panic("wireuptest: the map lacks a member")
	}
	if w.Payload == nil {
		w.Payload = SmallPayload
	}
	for _, f := range j.Faults {
		w.faults[f.Member] = f
	}
	for i := range w.layout.Size() {
		w.procs, w.all = append(w.procs, &process{world: w, member: i}), append(w.all, i)
	}
	return w
}

// SmallPayload is a payload with one PML and one address.
func SmallPayload(member int) wireup.Payload {
	return wireup.Payload{
		Nonce:        uint64(1000 + member),
		Capabilities: []byte{0x81, 0x84, 0x63, 'o', 'b', '1', 1, 20, 0x60},
		Card:         []byte{0x81, 0x82, 0x64, 'n', 'o', 'd', 'e', 0x41, byte('a' + member%26)},
		GroupIDs:     cid.NewTable(10).WithholdCandidates(cid.PolicyAgree, 2, 1<<10).Bytes(),
	}
}

func (w *world) after(at time.Duration, run func()) {
	w.sequence++
	heap.Push(&w.events, event{at, w.sequence, run})
}

// run runs all events while members are in their calls. A deadline is an event only if there are faults; a job without
// faults that stops is a defect.
func (w *world) run() {
	for i, p := range w.procs {
		f, isFaulty := w.faults[i]
		start := time.Duration(0)
		if w.Random != nil {
			start = time.Duration(w.Random.Int64N(int64(100 * time.Microsecond)))
		}
		switch {
		case isFaulty && f.Kind == Absent:
			continue
		case isFaulty && f.Kind == Late:
			start = 3 * w.Timeout
		}
		w.live++
		w.after(start, func() { p.start(start) })
	}
	for w.live > 0 {
		if len(w.events) == 0 {
			panic(fmt.Sprintf("wireuptest: %d members wait, and no event is left", w.live))
		}
		heap.Pop(&w.events).(event).run()
	}
}

// latency returns the latency of one message.
func (w *world) latency(n LogGP) time.Duration {
	if w.Random == nil {
		return n.Latency
	}
	return n.Latency * time.Duration(1+w.Random.IntN(20))
}

func (w *world) trace(format string, args ...any) {
	if w.Trace != nil {
		w.Trace(format, args...)
	}
}

// process is one member.
type process struct {
	world  *world
	member int
	// It may be ahead of the event that runs.
	clock   time.Duration
	started time.Duration
	// Time when the network accepts another message.
	free time.Duration
	// Processes that it exchanged messages with.
	peers map[int]struct{}
	// Length of the longest chain of messages that led here.
	depth   int
	steps   int
	counts  Counts
	outcome Outcome

	isCanceled bool
	isDead     bool
	// The death has been reported.
	isReported bool
	hasEnded   bool

	// Reports whether the wait of the process has ended; nil if it runs.
	waits func() bool
	// Number of waits. A deadline applies to one of them.
	turn uint64
	// Turn that has expired.
	expired uint64
	next    func() (struct{}, bool)
	stop    func()
	yield   func(struct{}) bool
}

// killed unwinds the coroutine of a process that dies.
type killed struct{}

func (p *process) start(at time.Duration) {
	p.clock, p.started, p.outcome.Called = at, at, true
	p.next, p.stop = iter.Pull(p.body)
	p.next()
}

// body is the coroutine of a process.
func (p *process) body(yield func(struct{}) bool) {
	p.yield = yield
	defer func() {
		if v := recover(); v != nil {
			if _, ok := v.(killed); !ok {
				panic(v)
			}
		}
		p.hasEnded = true
		p.world.live--
	}()
	w := p.world
	if w.IsSingle {
		p.single()
		return
	}
	t, err := wireup.Create(&port{process: p, level0: p.key()}, wireup.Call{Layout: w.layout, Member: p.member, Tag: "model", Timeout: w.Timeout})
	p.outcome.Table, p.outcome.Err, p.outcome.Elapsed = t, err, p.clock
	if err != nil {
		w.trace("%d: %v", p.member, err)
	} else {
		w.trace("%d: created %d", p.member, t.ID())
	}
}

// single joins a construct of all members.
func (p *process) single() {
	l := wireup.Level{Self: p.member, Members: p.world.all}
	_, _, err := (&port{process: p, level0: p.key()}).Construct(l, nil, p.world.Timeout)
	p.outcome.Err, p.outcome.Elapsed = err, p.clock
}

// recordPeer records a process that this one exchanges messages with.
func (p *process) recordPeer(member int) {
	if p.peers == nil {
		p.peers = map[int]struct{}{}
	}
	p.peers[member] = struct{}{}
}

// key is the key of the process's levels.
func (p *process) key() uint64 {
	rootsFrom := 0
	if f, ok := p.world.faults[p.member]; ok && f.Kind == Other {
		rootsFrom = 1
	}
	return p.world.layout.Key("model", rootsFrom)
}

// step counts a step. A fault may be injected at each step.
func (p *process) step() {
	f, ok := p.world.faults[p.member]
	if ok && f.Step == p.steps && !f.During {
		p.inject(f)
		if p.isDead {
			panic(killed{})
		}
	}
	p.steps++
}

// during injects the fault of the present step shortly after its wait has begun.
func (p *process) during() {
	f, ok := p.world.faults[p.member]
	if !ok || !f.During || f.Step != p.steps-1 || f.Kind < Die {
		return
	}
	delay := time.Microsecond
	if r := p.world.Random; r != nil {
		delay = time.Duration(r.Int64N(int64(50 * time.Microsecond)))
	}
	turn := p.turn
	p.world.after(p.clock+delay, func() {
		if p.hasEnded || p.waits == nil || p.turn != turn {
			return
		}
		p.clock = max(p.clock, p.clock+delay)
		p.inject(f)
		if p.isDead {
			p.stop()
			return
		}
		p.wake(p.clock)
	})
}

func (p *process) inject(f Fault) {
	switch f.Kind {
	case Die:
		p.world.trace("%d: dies", p.member)
		p.isDead, p.outcome.Died = true, true
		p.world.after(p.clock+p.world.Machine.Notice, func() {
			p.isReported = true
			p.world.report(p)
		})
	case Hang:
		p.world.trace("%d: hangs", p.member)
		p.isDead, p.outcome.Died = true, true
	case Cancel:
		p.world.trace("%d: is canceled", p.member)
		p.isCanceled = true
	}
}

// report wakes the processes that wait for one that has died.
func (w *world) report(dead *process) {
	at := dead.clock + w.Machine.Notice
	w.failConstructs(dead.member)
	for _, p := range w.procs {
		p.wake(at)
	}
}

// wait blocks until ready returns true, which is evaluated at each wake. It reports whether the deadline has passed first.
func (p *process) wait(deadline time.Duration, ready func() bool) (isExpired bool) {
	p.turn++
	turn := p.turn
	if len(p.world.faults) > 0 {
		at := p.started + deadline
		p.world.after(at, func() {
			if !p.hasEnded && p.waits != nil && p.turn == turn {
				p.expired = turn
				p.wake(at)
			}
		})
	}
	p.waits = ready
	p.during()
	for {
		if ready() {
			p.waits = nil
			return false
		}
		if p.expired == turn {
			p.waits = nil
			return true
		}
		if !p.yield(struct{}{}) {
			panic(killed{})
		}
	}
}

// wake continues a process that waits, if its wait has ended by that time.
func (p *process) wake(at time.Duration) {
	if p.hasEnded || p.isDead || p.waits == nil || p.expired != p.turn && !p.waits() {
		return
	}
	p.clock = max(p.clock, at)
	p.next()
}

// shuffle returns a random order of n, if the job is random.
func shuffle(r *rand.Rand, n int) []int {
	if r == nil {
		order := make([]int, n)
		for i := range order {
			order[i] = i
		}
		return order
	}
	return r.Perm(n)
}
