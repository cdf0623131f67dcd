package mpi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// opened is a component's instance for a communicator.
type opened struct {
	component string
	coll.Instance
}

// open opens the instances that components want here, in all members at once, and takes
// what they offer into account from now on. A component that fails in one member is left
// out in all. An error is that of the exchange. Inside do.
func (k *collective) open(ctx context.Context) error {
	k.unopened = false
	var usable []coll.Offered
	for _, o := range k.offers {
		if o.Open != nil {
			x, err := k.openOne(ctx, o)
			if err != nil {
				return fmt.Errorf("coll %s: opening it: %w", o.Component, err)
			}
			if x == nil {
				continue
			}
			k.instances = append(k.instances, opened{o.Component, x})
		}
		usable = append(usable, o)
	}
	if len(k.instances) > 0 {
		k.comm().session.engine.tries.join()
		k.table = coll.NewTable(usable, k.force)
		k.comm().session.engine.NoteCollectives(k.comm().size, k.table, true)
	}
	return nil
}

var errElsewhere = errors.New("it could not be opened in another member")

// openOne opens one instance; nil: the members do without.
func (k *collective) openOne(ctx context.Context, o coll.Offered) (coll.Instance, error) {
	c := k.comm()
	x, failed := o.Open(coll.Member{Rank: c.rank, Size: c.size})
	const size = 1 + coll.CardSize // the length comes first, plus one; 0: it has failed
	mine, all := make([]byte, size), make([]byte, size*c.size)
	if failed == nil {
		mine[0] = byte(1 + copy(mine[1:], x.Card()))
	}
	gather := call{op: coll.Allgather, in: mine, out: all}
	gather.sized(size)
	err := k.inline(ctx, &gather)
	if err == nil && failed == nil {
		failed = join(x, all, size)
	}
	fine := []byte{1}
	if failed != nil {
		fine[0] = 0
	}
	if err == nil {
		var agree call
		if agree, err = reduction(coll.Allreduce, nil, fine, Min[byte](), true); err == nil {
			err = k.inline(ctx, &agree)
		}
	}
	if err == nil && fine[0] == 1 {
		return x, nil
	}
	if failed == nil {
		failed = errElsewhere
	}
	if x != nil {
		x.Close()
	}
	c.session.engine.Env().Logger.Info("a coll component is left out on a communicator", "component", o.Component, "id", c.spec.ID, "err", failed)
	return nil, err
}

// join gives an instance the cards of all.
func join(x coll.Instance, all []byte, size int) error {
	var cards [][]byte
	for rank := 0; len(all) > 0; rank, all = rank+1, all[size:] {
		n := int(all[0])
		if n == 0 || n > size {
			return fmt.Errorf("rank %d: %w", rank, errElsewhere)
		}
		cards = append(cards, all[1:n:n])
	}
	return x.Join(cards)
}

// instance returns that of a component, or nil.
func (k *collective) instance(component string) coll.Instance {
	for _, x := range k.instances {
		if x.component == component {
			return x.Instance
		}
	}
	return nil
}

// closeInstances closes them when the communicator is closed and none of its collectives
// is under way. It is called when either may have come to be.
func (k *collective) closeInstances() {
	if !k.used.Load() || !k.comm().closed.Load() || k.started.n.Load() > 0 || !k.busy.CompareAndSwap(false, true) {
		return
	}
	for _, x := range k.instances {
		x.Close()
	}
	k.instances = nil
	k.busy.Store(false)
}

// abort ends what waits in collectives of the communicator, now and later.
func (k *collective) abort(err error) {
	c := k.comm()
	c.pml.Abort(pml.Collective, err)
	e := k.engine()
	e.Lock()
	defer e.Unlock()
	if k.aborted == nil {
		k.aborted = err
	}
	c.session.engine.tries.abort(k, err)
}

// try is a step of an instance that was not over when it was tried. It is waited for
// inline, or it is an operation's.
type try struct {
	progress.Completion
	k        *collective
	instance coll.Instance
	op       uint32
	step     *coll.Step
	err      error
	of       *operation
	i        int // of of's steps
}

// Poll implements progress.Source for who waits for this one.
func (t *try) Poll() int {
	if t.Done() || !t.instance.Try(t.op, t.step) {
		return 0
	}
	t.k.comm().session.engine.tries.over(t, nil)
	return 1
}

// tries are those of an engine, of which they are a source. Guarded by its lock.
type tries struct {
	e     *engine
	added bool // guarded by e.mu
	list  []*try
}

// join has the engine poll the tries.
func (s *tries) join() {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if !s.added {
		s.added = true
		s.e.progress.Add(s)
	}
}

// leave is called before the engine closes.
func (s *tries) leave() {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if s.added {
		s.e.progress.Remove(s)
	}
}

// Poll implements progress.Source.
func (s *tries) Poll() (n int) {
	for _, t := range slices.Clone(s.list) {
		if slices.Contains(s.list, t) { // an operation that goes on may end another
			n += t.Poll()
		}
	}
	return n
}

// triesInterval is how often instances are looked after while all sleep: nobody rings
// for them.
const triesInterval = time.Millisecond

// Interval implements progress.Polled.
func (s *tries) Interval() time.Duration {
	if len(s.list) == 0 {
		return 0
	}
	return triesInterval
}

// over ends a try.
func (s *tries) over(t *try, err error) {
	i := slices.Index(s.list, t)
	s.list = slices.Delete(s.list, i, i+1)
	t.err = err
	if o := t.of; o != nil {
		o.busy--
		o.done(t.i, err)
		o.move()
		return
	}
	s.e.progress.Complete(&t.Completion)
}

func (s *tries) abort(k *collective, err error) {
	for _, t := range slices.Clone(s.list) {
		if t.k == k && slices.Contains(s.list, t) {
			s.over(t, err)
		}
	}
}

// Own implements coll.Peers.
func (p *peers) Own(ctx context.Context, s *coll.Step) error {
	k := &p.c.collective
	all := &p.c.session.engine.tries
	e := k.engine()
	e.Lock()
	defer e.Unlock()
	if p.instance.Try(p.op, s) {
		return nil
	}
	if err := k.aborted; err != nil {
		return err
	}
	t := &try{k: k, instance: p.instance, op: p.op, step: s}
	all.list = append(all.list, t)
	if err := e.Wait(ctx, &t.Completion, t); err != nil {
		if !t.Done() {
			all.over(t, err)
		}
		return err
	}
	return t.err
}

// own starts a step of an instance. Lock held.
func (o *operation) own(i int) {
	s := &o.schedule.Steps[i]
	switch err := o.k.aborted; {
	case o.instance.Try(o.turn, s):
		o.run.Done(i)
	case err != nil:
		o.fails(err)
	default:
		o.busy++
		all := &o.k.comm().session.engine.tries
		all.list = append(all.list, &try{k: o.k, instance: o.instance, op: o.turn, step: s, of: o, i: i})
	}
}
