package colltest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/ferrympi/ferry/coll"
)

// shuffled carries the schedules of all members out on one goroutine, step by step, in
// an order that a random number decides: who starts a step, which send or receive
// completes next, and whether a send reads its buffer at once or when it is received.
// A receive may write to its buffer from its start on.
// One member enters only when nothing else happens any more. In a barrier nobody's part
// is over before.
func shuffled(random *rand.Rand, members []*member, barrier bool) error {
	n := len(members)
	w := shuffle{random: random, members: members, runs: make([]coll.Run, n), entered: make([]bool, n), outside: n, late: random.IntN(n), pairs: make([]pair, n*n)}
	for rank, m := range members {
		w.runs[rank].Begin(&m.schedule)
	}
	for {
		events := w.next()
		if len(events) == 0 {
			break
		}
		e := events[random.IntN(len(events))]
		if err := e.happen(&w, e.index); err != nil {
			return err
		}
		for rank := range members {
			if barrier && w.outside > 0 && w.entered[rank] && w.runs[rank].Over() {
				return fmt.Errorf("rank %d leaves before %d others have entered", rank, w.outside)
			}
		}
	}
	for rank := range members {
		if !w.runs[rank].Over() {
			return fmt.Errorf("rank %d never ends", rank)
		}
	}
	for i, p := range w.pairs {
		if len(p.sends) > 0 {
			return fmt.Errorf("rank %d does not receive %d messages of rank %d", i%n, len(p.sends), i/n)
		}
	}
	return nil
}

type shuffle struct {
	random  *rand.Rand
	members []*member
	runs    []coll.Run
	entered []bool
	outside int    // have not entered
	late    int    // enters last
	pairs   []pair // by sender and receiver
	local   []work // under way
	events  []event
}

// pair is what has started between two members and is not complete, in order.
type pair struct{ sends, recvs []inFlight }

// inFlight is a send or receive. data is not nil if the send has read its buffer.
type inFlight struct {
	step int
	data []byte
}

// work is a step that combines or copies, or that the instance does.
type work struct {
	rank, step int
	over       bool // the instance has done it
	err        error
}

// event is something that may happen next.
type event struct {
	happen func(w *shuffle, index int) error
	index  int
}

func (w *shuffle) next() []event {
	w.events = w.events[:0]
	for rank := range w.members {
		asked := w.runs[rank]
		if !w.entered[rank] {
			if rank == w.late {
				continue
			}
			w.events = append(w.events, event{(*shuffle).enter, rank})
		} else if _, ok := asked.Next(); ok {
			w.events = append(w.events, event{(*shuffle).start, rank})
		}
	}
	for i, p := range w.pairs {
		if len(p.sends) > 0 && len(p.recvs) > 0 {
			w.events = append(w.events, event{(*shuffle).deliver, i})
		}
	}
	for i := range w.local {
		at := &w.local[i]
		m := w.members[at.rank]
		if s := &m.schedule.Steps[at.step]; s.Kind == coll.Own && !at.over {
			m.Asleep = w.random.IntN(2) == 0
			if at.over, at.err = m.instance.Try(s, &m.Call); !at.over && at.err == nil {
				continue // a deadlock if nothing else happens
			}
		}
		w.events = append(w.events, event{(*shuffle).do, i})
	}
	if len(w.events) == 0 && !w.entered[w.late] {
		w.events = append(w.events, event{(*shuffle).enter, w.late})
	}
	return w.events
}

func (w *shuffle) enter(rank int) error {
	w.entered[rank] = true
	w.outside--
	return nil
}

// start starts a member's next step.
func (w *shuffle) start(rank int) error {
	m, run := w.members[rank], &w.runs[rank]
	i, _ := run.Next()
	step := &m.schedule.Steps[i]
	peer, n := int(step.Peer), len(w.members)
	if step.Kind <= coll.Recv && (peer < 0 || peer >= n || peer == rank) {
		return fmt.Errorf("rank %d exchanges a message with rank %d", rank, peer)
	}
	switch step.Kind {
	case coll.Send:
		f := inFlight{step: i}
		if w.random.IntN(2) == 0 {
			f.data = append([]byte{}, m.At(step.Buf, step.N)...)
			run.Done(i)
		}
		p := &w.pairs[rank*n+peer]
		p.sends = append(p.sends, f)
	case coll.Recv:
		poison(m.At(step.Buf, step.N))
		p := &w.pairs[peer*n+rank]
		p.recvs = append(p.recvs, inFlight{step: i})
	default:
		w.local = append(w.local, work{rank: rank, step: i})
	}
	return nil
}

// do ends a step that combines or copies.
func (w *shuffle) do(i int) error {
	at := w.local[i]
	w.local = append(w.local[:i], w.local[i+1:]...)
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
	w.runs[at.rank].Done(at.step)
	return nil
}

// deliver completes the first send and receive of a pair.
func (w *shuffle) deliver(i int) error {
	p, n := &w.pairs[i], len(w.members)
	send, recv := p.sends[0], p.recvs[0]
	p.sends, p.recvs = p.sends[1:], p.recvs[1:]
	from, to := w.members[i/n], w.members[i%n]
	data := send.data
	if data == nil {
		step := &from.schedule.Steps[send.step]
		data = from.At(step.Buf, step.N)
		defer w.runs[i/n].Done(send.step)
	}
	step := &to.schedule.Steps[recv.step]
	if err := step.Whole(len(data), nil); err != nil {
		return err
	}
	copy(to.At(step.Buf, step.N), data)
	w.runs[i%n].Done(recv.step)
	return nil
}

// checkSchedule says what is wrong with a schedule: memory that isn't there, and steps
// that may go on at the same time, one of which writes what the other one uses.
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
					break // it is complete, and so are those before it
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
