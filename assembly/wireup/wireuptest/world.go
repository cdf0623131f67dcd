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
	// Ranks in the group.
	allMembers    []int
	faultByMember map[int]Fault
	events        events
	lastSequence  uint64
	constructs    map[constructKey]*construct
	// By node root.
	tableByRoot    map[int][]byte
	lastContextID  uint64
	runningMembers int
}

// event is a function that runs at a time. Events of one time run in the order of their creation.
type event struct {
	dueAt    time.Duration
	sequence uint64
	run      func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].dueAt < e[j].dueAt || e[i].dueAt == e[j].dueAt && e[i].sequence < e[j].sequence
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
	w := &world{Job: j, layout: wireup.NewLayout(j.Group, Namespace, j.NodeMap), faultByMember: map[int]Fault{}, constructs: map[constructKey]*construct{}, tableByRoot: map[int][]byte{}, lastContextID: 100}
	if w.layout == nil {
		panic("wireuptest: the map lacks a member")
	}
	if w.Payload == nil {
		w.Payload = SmallPayload
	}
	for _, f := range j.Faults {
		w.faultByMember[f.Member] = f
	}
	for i := range w.layout.Size() {
		w.procs, w.allMembers = append(w.procs, &process{world: w, member: i}), append(w.allMembers, i)
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
	w.lastSequence++
	heap.Push(&w.events, event{at, w.lastSequence, run})
}

// run runs all events while members are in their calls. A deadline is an event only if there are faults; a job without
// faults that stops is a defect.
func (w *world) run() {
	for i, p := range w.procs {
		f, isFaulty := w.faultByMember[i]
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
		w.runningMembers++
		w.after(start, func() { p.start(start) })
	}
	for w.runningMembers > 0 {
		if len(w.events) == 0 {
			panic(fmt.Sprintf("wireuptest: %d members wait, and no event is left", w.runningMembers))
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
	if w.TraceStep != nil {
		w.TraceStep(format, args...)
	}
}

// process is one member.
type process struct {
	world  *world
	member int
	// It may be ahead of the event that runs.
	clock     time.Duration
	startedAt time.Duration
	// The network accepts another message then.
	networkFreeAt  time.Duration
	contactedPeers map[int]struct{}
	// Length of the longest chain of messages that led here.
	chainDepth int
	stepCount  int
	counts     Counts
	outcome    Outcome

	isCanceled bool
	isDead     bool
	// The death has been reported.
	isReported bool
	hasEnded   bool

	// nil if the process runs.
	isWaitOver func() bool
	// A deadline applies to one wait.
	waitNumber uint64
	// Number of a wait with a deadline that has passed.
	expiredWait uint64
	resumeBody  func() (struct{}, bool)
	unwindBody  func()
	yield       func(struct{}) bool
}

// killed unwinds the coroutine of a process that dies.
type killed struct{}

func (p *process) start(at time.Duration) {
	p.clock, p.startedAt, p.outcome.HasCalled = at, at, true
	p.resumeBody, p.unwindBody = iter.Pull(p.body)
	p.resumeBody()
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
		p.world.runningMembers--
	}()
	w := p.world
	if w.IsSingle {
		p.single()
		return
	}
	t, err := wireup.Create(&port{process: p, levelKey: p.key()}, wireup.Call{Layout: w.layout, Member: p.member, UserTag: "model", Timeout: w.Timeout})
	p.outcome.Table, p.outcome.Err, p.outcome.Elapsed = t, err, p.clock
	if err != nil {
		w.trace("%d: %v", p.member, err)
	} else {
		w.trace("%d: created %d", p.member, t.ID())
	}
}

// single joins a construct of all members.
func (p *process) single() {
	l := wireup.Level{SelfIndex: p.member, Members: p.world.allMembers}
	_, _, err := (&port{process: p, levelKey: p.key()}).Construct(l, nil, p.world.Timeout)
	p.outcome.Err, p.outcome.Elapsed = err, p.clock
}

// recordPeer records a process that this one exchanges messages with.
func (p *process) recordPeer(member int) {
	if p.contactedPeers == nil {
		p.contactedPeers = map[int]struct{}{}
	}
	p.contactedPeers[member] = struct{}{}
}

// key is the key of the process's levels.
func (p *process) key() uint64 {
	rootsFrom := 0
	if f, ok := p.world.faultByMember[p.member]; ok && f.Kind == Other {
		rootsFrom = 1
	}
	return p.world.layout.Key("model", rootsFrom)
}

// step counts a step. A fault may be injected at each step.
func (p *process) step() {
	f, ok := p.world.faultByMember[p.member]
	if ok && f.AtStep == p.stepCount && !f.IsDuringWait {
		p.inject(f)
		if p.isDead {
			panic(killed{})
		}
	}
	p.stepCount++
}

// during injects the fault of the present step shortly after its wait has begun.
func (p *process) during() {
	f, ok := p.world.faultByMember[p.member]
	if !ok || !f.IsDuringWait || f.AtStep != p.stepCount-1 || f.Kind < Die {
		return
	}
	delay := time.Microsecond
	if r := p.world.Random; r != nil {
		delay = time.Duration(r.Int64N(int64(50 * time.Microsecond)))
	}
	waitNumber := p.waitNumber
	p.world.after(p.clock+delay, func() {
		if p.hasEnded || p.isWaitOver == nil || p.waitNumber != waitNumber {
			return
		}
		p.clock = max(p.clock, p.clock+delay)
		p.inject(f)
		if p.isDead {
			p.unwindBody()
			return
		}
		p.wake(p.clock)
	})
}

func (p *process) inject(f Fault) {
	switch f.Kind {
	case Die:
		p.world.trace("%d: dies", p.member)
		p.isDead, p.outcome.HasDied = true, true
		p.world.after(p.clock+p.world.Machine.DeathReportDelay, func() {
			p.isReported = true
			p.world.report(p)
		})
	case Hang:
		p.world.trace("%d: hangs", p.member)
		p.isDead, p.outcome.HasDied = true, true
	case Cancel:
		p.world.trace("%d: is canceled", p.member)
		p.isCanceled = true
	}
}

// report wakes the processes that wait for one that has died.
func (w *world) report(dead *process) {
	at := dead.clock + w.Machine.DeathReportDelay
	w.failConstructs(dead.member)
	for _, p := range w.procs {
		p.wake(at)
	}
}

// wait blocks until ready returns true, which is evaluated at each wake. It reports whether the deadline has passed first.
func (p *process) wait(deadline time.Duration, ready func() bool) (isExpired bool) {
	p.waitNumber++
	waitNumber := p.waitNumber
	if len(p.world.faultByMember) > 0 {
		at := p.startedAt + deadline
		p.world.after(at, func() {
			if !p.hasEnded && p.isWaitOver != nil && p.waitNumber == waitNumber {
				p.expiredWait = waitNumber
				p.wake(at)
			}
		})
	}
	p.isWaitOver = ready
	p.during()
	for {
		if ready() {
			p.isWaitOver = nil
			return false
		}
		if p.expiredWait == waitNumber {
			p.isWaitOver = nil
			return true
		}
		if !p.yield(struct{}{}) {
			panic(killed{})
		}
	}
}

// wake continues a process that waits, if its wait has ended by that time.
func (p *process) wake(at time.Duration) {
	if p.hasEnded || p.isDead || p.isWaitOver == nil || p.expiredWait != p.waitNumber && !p.isWaitOver() {
		return
	}
	p.clock = max(p.clock, at)
	p.resumeBody()
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
