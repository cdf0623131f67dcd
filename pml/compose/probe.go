package compose

import (
	"context"
	"errors"
	"slices"

	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// Iprobe implements pml.Comm.
func (c *comm) Iprobe(src, tag int, plane pml.Plane) (pml.Status, bool, error) {
	_, st, ok, err := c.probe(src, tag, plane, false)
	return st, ok, err
}

// Improbe implements pml.Comm.
func (c *comm) Improbe(src, tag int, plane pml.Plane) (pml.Claimed, pml.Status, bool, error) {
	return c.probe(src, tag, plane, true)
}

// Probe implements pml.Comm.
func (c *comm) Probe(ctx context.Context, src, tag int, plane pml.Plane) (pml.Status, error) {
	_, st, err := c.await(ctx, src, tag, plane, false)
	return st, err
}

// Mprobe implements pml.Comm.
func (c *comm) Mprobe(ctx context.Context, src, tag int, plane pml.Plane) (pml.Claimed, pml.Status, error) {
	return c.await(ctx, src, tag, plane, true)
}

// lookIn is Improbe, or Iprobe, of a communicator below.
func lookIn(c pml.Comm, src, tag int, plane pml.Plane, claim bool) (k pml.Claimed, st pml.Status, ok bool, err error) {
	if claim {
		return c.Improbe(src, tag, plane)
	}
	st, ok, err = c.Iprobe(src, tag, plane)
	return nil, st, ok, err
}

// awaitIn is Mprobe, or Probe, of a communicator below.
func awaitIn(ctx context.Context, c pml.Comm, src, tag int, plane pml.Plane, claim bool) (k pml.Claimed, st pml.Status, err error) {
	if claim {
		return c.Mprobe(ctx, src, tag, plane)
	}
	st, err = c.Probe(ctx, src, tag, plane)
	return nil, st, err
}

// probe asks once for a message.
func (c *comm) probe(src, tag int, plane pml.Plane, claim bool) (pml.Claimed, pml.Status, bool, error) {
	if src != pml.AnySource {
		if k, st, ok, err := lookIn(c.part(src), src, tag, plane, claim); err != pml.ErrWatched {
			return k, st, ok, err
		}
	}
	e := c.j.engine
	e.Lock()
	defer e.Release()
	w := c.wildcards(plane)
	k, st, ok, err := w.find(src, tag, claim)
	if ok || err != nil {
		return k, st, ok, err
	}
	if src != pml.AnySource {
		e.Progress()
		return w.find(src, tag, claim)
	}
	return w.lookInNetwork(tag, claim)
}

// lookInNetwork asks once for a message from any source that find has not found. Lock
// held, and released meanwhile.
func (w *wildcards) lookInNetwork(tag int, claim bool) (pml.Claimed, pml.Status, bool, error) {
	e := w.c.j.engine
	e.Release()
	k, st, ok, err := lookIn(w.c.network, pml.AnySource, tag, w.plane, claim)
	e.Lock()
	if ok {
		return k, st, ok, err
	}
	if k, st, ok, _ := w.find(pml.AnySource, tag, claim); ok { // it came meanwhile
		return k, st, ok, nil
	}
	if err == nil && len(w.arrived) == 0 {
		err = w.pendingReason()
	}
	return k, st, false, err
}

// find looks among the messages of the node. The error says that none can come. Lock
// held.
func (w *wildcards) find(src, tag int, claim bool) (pml.Claimed, pml.Status, bool, error) {
	if err := w.c.over(); err != nil {
		return nil, pml.NoMessage(), false, err
	}
	if found := w.queues.Find(w.from(src), src, tag); found != nil {
		msg := found.Owner
		if !claim {
			return nil, msg.status(), true, nil
		}
		w.take(msg)
		return msg.claimed, msg.status(), true, nil
	}
	if src == pml.AnySource {
		return nil, pml.NoMessage(), false, nil
	}
	err := w.c.watchable.CannotCome(src, w.plane)
	if err != nil && len(w.arrived) > 0 { // its message may be among them
		w.changed, err = true, nil
	}
	return nil, pml.NoMessage(), false, err
}

// probe is a blocked one, which looks again when something arrives on the node.
type probe struct {
	again progress.Completion
	stop  context.CancelCauseFunc // of the network's probe; nil: the message comes from the node
	// isWoken is set if stop was called to look again. The network may be a composition too, and in its probe that call is
	// not an arrival.
	isWoken bool
}

// errArrived ends the network's part of a probe.
var errArrived = errors.New("something has arrived on the node")

// wakeProbes has blocked probes look again. Lock held.
func (w *wildcards) wakeProbes() {
	for _, p := range w.probes {
		if p.stop != nil {
			p.isWoken = true
			p.stop(errArrived)
		} else if !p.again.Done() {
			w.c.j.engine.Complete(&p.again)
		}
	}
}

// await waits for a message.
func (c *comm) await(ctx context.Context, src, tag int, plane pml.Plane, claim bool) (pml.Claimed, pml.Status, error) {
	if src != pml.AnySource {
		if k, st, err := awaitIn(ctx, c.part(src), src, tag, plane, claim); err != pml.ErrWatched {
			return k, st, err
		}
	}
	e := c.j.engine
	e.Lock()
	defer e.Release()
	w := c.wildcards(plane)
	for {
		k, st, ok, err := w.find(src, tag, claim)
		if ok || err != nil {
			return k, st, err
		}
		if src == pml.AnySource && w.pendingReason() != nil {
			if k, st, ok, err = w.lookInNetwork(tag, claim); ok || err != nil {
				return k, st, err
			}
			w.changed = true // it comes again when what has arrived is settled
		}
		p := new(probe)
		w.probes = append(w.probes, p)
		if src != pml.AnySource {
			err = e.Wait(ctx, &p.again, nil)
		} else {
			k, st, err = w.awaitNetwork(ctx, p, tag, claim)
		}
		w.probes = slices.DeleteFunc(w.probes, func(x *probe) bool { return x == p })
		switch {
		case err != nil && p.isWoken:
		case err != nil:
			if k, st, ok, _ := w.find(src, tag, claim); ok { // it came meanwhile
				return k, st, nil
			}
			return nil, pml.NoMessage(), err
		case src == pml.AnySource:
			return k, st, nil
		}
	}
}

// awaitNetwork probes the network until something arrives on the node. Lock held, and
// released meanwhile.
func (w *wildcards) awaitNetwork(ctx context.Context, p *probe, tag int, claim bool) (pml.Claimed, pml.Status, error) {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, p.stop = context.WithCancelCause(ctx)
	e := w.c.j.engine
	e.Release()
	defer e.Lock()
	defer p.stop(nil)
	return awaitIn(ctx, w.c.network, pml.AnySource, tag, w.plane, claim)
}
