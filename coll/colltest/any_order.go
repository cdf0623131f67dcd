package colltest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/ferrympi/ferry/coll"
)

// runShuffled executes the schedules of all members on one goroutine in a random order of events. An
// event is the start of a step, the completion of a send or receive, or the entry of a member. A
// send may read its buffer at its start or at its completion. A receive may write to its buffer
// from its start. One member enters only when no other event is possible. No member may complete a
// barrier before that.
func runShuffled(random *rand.Rand, members []*member, barrier bool) error {
	n := len(members)
	w := shuffler{random: random, members: members, runs: make([]coll.Run, n), hasEntered: make([]bool, n), notEntered: n, lastToEnter: random.IntN(n), queuesByPair: make([]pairQueues, n*n)}
	for rank, m := range members {
		w.runs[rank].Begin(&m.schedule)
	}
	for {
		events := w.nextEvents()
		if len(events) == 0 {
			break
		}
		e := events[random.IntN(len(events))]
		if err := e.apply(&w, e.index); err != nil {
			return err
		}
		for rank := range members {
			if barrier && w.notEntered > 0 && w.hasEntered[rank] && w.runs[rank].IsComplete() {
				return fmt.Errorf("rank %d leaves before %d others have entered", rank, w.notEntered)
			}
		}
	}
	for rank := range members {
		if !w.runs[rank].IsComplete() {
			return fmt.Errorf("rank %d never ends", rank)
		}
	}
	for i, p := range w.queuesByPair {
		if len(p.pendingSends) > 0 {
			return fmt.Errorf("rank %d does not receive %d messages of rank %d", i%n, len(p.pendingSends), i/n)
		}
	}
	return nil
}

type shuffler struct {
	random     *rand.Rand
	members    []*member
	runs       []coll.Run
	hasEntered []bool
	// Number of members that have not entered.
	notEntered int
	// Member that enters last.
	lastToEnter int
	// By sender and receiver.
	queuesByPair []pairQueues
	// Pending steps without messages.
	pendingWork    []workStep
	possibleEvents []event
}

// pairQueues has the pending operations between two members in order.
type pairQueues struct{ pendingSends, pendingRecvs []inFlight }

// inFlight is a send or receive. The data of a send that has read its buffer are not nil.
type inFlight struct {
	step     int
	sentData []byte
}

// workStep is a step that combines or copies, or that the instance executes.
type workStep struct {
	rank, step int
	// Whether the instance has completed the step.
	isDone bool
	err    error
}

// event is a possible next event.
type event struct {
	apply func(w *shuffler, index int) error
	index int
}

func (w *shuffler) nextEvents() []event {
	w.possibleEvents = w.possibleEvents[:0]
	for rank := range w.members {
		asked := w.runs[rank]
		if !w.hasEntered[rank] {
			if rank == w.lastToEnter {
				continue
			}
			w.possibleEvents = append(w.possibleEvents, event{(*shuffler).enterMember, rank})
		} else if _, ok := asked.NextStep(); ok {
			w.possibleEvents = append(w.possibleEvents, event{(*shuffler).startStep, rank})
		}
	}
	for i, p := range w.queuesByPair {
		if len(p.pendingSends) > 0 && len(p.pendingRecvs) > 0 {
			w.possibleEvents = append(w.possibleEvents, event{(*shuffler).deliver, i})
		}
	}
	for i := range w.pendingWork {
		at := &w.pendingWork[i]
		m := w.members[at.rank]
		if s := &m.schedule.Steps[at.step]; s.Kind == coll.Own && !at.isDone {
			m.IsWaiterAsleep = w.random.IntN(2) == 0
			if at.isDone, at.err = m.instance.PollStep(s, &m.Call); !at.isDone && at.err == nil {
				continue // Without another event, this is a deadlock.
			}
		}
		w.possibleEvents = append(w.possibleEvents, event{(*shuffler).completeWork, i})
	}
	if len(w.possibleEvents) == 0 && !w.hasEntered[w.lastToEnter] {
		w.possibleEvents = append(w.possibleEvents, event{(*shuffler).enterMember, w.lastToEnter})
	}
	return w.possibleEvents
}

func (w *shuffler) enterMember(rank int) error {
	w.hasEntered[rank] = true
	w.notEntered--
	return nil
}

// startStep starts the next step of a member.
func (w *shuffler) startStep(rank int) error {
	m, run := w.members[rank], &w.runs[rank]
	i, _ := run.NextStep()
	step := &m.schedule.Steps[i]
	peer, n := int(step.Peer), len(w.members)
	if step.Kind <= coll.Recv && (peer < 0 || peer >= n || peer == rank) {
		return fmt.Errorf("rank %d exchanges a message with rank %d", rank, peer)
	}
	switch step.Kind {
	case coll.Send:
		f := inFlight{step: i}
		if w.random.IntN(2) == 0 {
			f.sentData = append([]byte{}, m.At(step.Buf, step.N)...)
			run.Complete(i)
		}
		p := &w.queuesByPair[rank*n+peer]
		p.pendingSends = append(p.pendingSends, f)
	case coll.Recv:
		poison(m.At(step.Buf, step.N))
		p := &w.queuesByPair[peer*n+rank]
		p.pendingRecvs = append(p.pendingRecvs, inFlight{step: i})
	default:
		w.pendingWork = append(w.pendingWork, workStep{rank: rank, step: i})
	}
	return nil
}

// completeWork completes a step without a message.
func (w *shuffler) completeWork(i int) error {
	at := w.pendingWork[i]
	w.pendingWork = append(w.pendingWork[:i], w.pendingWork[i+1:]...)
	m := w.members[at.rank]
	step := &m.schedule.Steps[at.step]
	if at.err != nil {
		return fmt.Errorf("rank %d: %w", at.rank, at.err)
	}
	switch {
	case step.Kind == coll.Work:
		m.instance.(coll.Worker).Work(step, &m.Call)
	case step.Kind != coll.Own:
		to, from := m.At(step.Buf, step.N), m.At(step.From, step.N)
		if step.Kind == coll.Copy {
			copy(to, from)
		} else {
			m.Apply(to, from)
		}
	}
	w.runs[at.rank].Complete(at.step)
	return nil
}

// deliver completes the oldest send and receive of a pair.
func (w *shuffler) deliver(i int) error {
	p, n := &w.queuesByPair[i], len(w.members)
	send, recv := p.pendingSends[0], p.pendingRecvs[0]
	p.pendingSends, p.pendingRecvs = p.pendingSends[1:], p.pendingRecvs[1:]
	from, to := w.members[i/n], w.members[i%n]
	data := send.sentData
	if data == nil {
		step := &from.schedule.Steps[send.step]
		data = from.At(step.Buf, step.N)
		defer w.runs[i/n].Complete(send.step)
	}
	step := &to.schedule.Steps[recv.step]
	if err := step.CheckLength(len(data), nil); err != nil {
		return err
	}
	copy(to.At(step.Buf, step.N), data)
	w.runs[i%n].Complete(recv.step)
	return nil
}

// checkSchedule returns an error for steps that use memory outside of a slot, and for concurrent
// steps of which one writes memory that the other one uses.
func checkSchedule(s *coll.Schedule, b *coll.Buffers) (err error) {
	size := map[coll.Slot]int{coll.In: len(b.In), coll.Out: len(b.Out), coll.Temp: len(b.Temp), coll.Shared: len(b.Shared)}
	type use struct {
		step   int
		ref    coll.Ref
		n      int
		writes bool
	}
	var uses []use
	for i, step := range s.Steps {
		if int(step.After) > i {
			return fmt.Errorf("step %d waits for itself", i)
		}
		if step.Kind >= coll.Own {
			continue
		}
		mine := []use{{i, step.Buf, step.N, step.Kind != coll.Send}}
		if step.Kind == coll.Copy || step.Kind == coll.Combine {
			mine = append(mine, use{i, step.From, step.N, false})
		}
		for _, u := range mine {
			if u.ref.At < 0 || u.n < 0 || u.n > 0 && u.ref.At+u.n > size[u.ref.Slot] {
				return fmt.Errorf("step %d uses bytes %d to %d of slot %d, which has %d", i, u.ref.At, u.ref.At+u.n, u.ref.Slot, size[u.ref.Slot])
			}
			for _, v := range slices.Backward(uses) {
				if v.step != i && v.step < int(step.After) {
					break // This step and all before it are complete.
				}
				overlap := u.ref.Slot == v.ref.Slot && u.ref.At < v.ref.At+v.n && v.ref.At < u.ref.At+u.n
				if overlap && (u.writes || v.writes) {
					err = errors.Join(err, fmt.Errorf("steps %d and %d use the same memory at the same time", v.step, i))
				}
			}
			uses = append(uses, u)
		}
	}
	return err
}
