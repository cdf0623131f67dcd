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

// probeIn is Improbe or Iprobe of one side.
func probeIn(c pml.Comm, src, tag int, plane pml.Plane, claim bool) (k pml.Claimed, st pml.Status, ok bool, err error) {
	if claim {
		return c.Improbe(src, tag, plane)
	}
	st, ok, err = c.Iprobe(src, tag, plane)
	return nil, st, ok, err
}

// awaitIn is Mprobe or Probe of one side.
func awaitIn(ctx context.Context, c pml.Comm, src, tag int, plane pml.Plane, claim bool) (k pml.Claimed, st pml.Status, err error) {
	if claim {
		return c.Mprobe(ctx, src, tag, plane)
	}
	st, err = c.Probe(ctx, src, tag, plane)
	return nil, st, err
}

// probe probes once for a message.
func (c *comm) probe(src, tag int, plane pml.Plane, claim bool) (pml.Claimed, pml.Status, bool, error) {
	if src != pml.AnySource {
		if k, st, ok, err := probeIn(c.partOf(src), src, tag, plane, claim); err != pml.ErrWatched {
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
	return w.probeNetwork(tag, claim)
}

// probeNetwork probes the network once for a message from any source, after find has found none. Lock held, and
// released temporarily.
func (w *wildcards) probeNetwork(tag int, claim bool) (pml.Claimed, pml.Status, bool, error) {
	e := w.c.j.engine
	e.Release()
	k, st, ok, err := probeIn(w.c.networkComm, pml.AnySource, tag, w.plane, claim)
	e.Lock()
	if ok {
		return k, st, ok, err
	}
	if k, st, ok, _ := w.find(pml.AnySource, tag, claim); ok { // It has arrived meanwhile.
		return k, st, ok, nil
	}
	if err == nil && len(w.arrivedMessages) == 0 {
		err = w.pendingReason()
	}
	return k, st, false, err
}

// find searches the messages of the node. An error means that none can come. Lock held.
func (w *wildcards) find(src, tag int, claim bool) (pml.Claimed, pml.Status, bool, error) {
	if err := w.c.closedError(); err != nil {
		return nil, pml.NoMessage(), false, err
	}
	if found := w.matchQueues.Find(w.from(src), src, tag); found != nil {
		msg := found.Owner
		if !claim {
			return nil, msg.status(), true, nil
		}
		w.takeUnexpected(msg)
		return msg.claimedMessage, msg.status(), true, nil
	}
	if src == pml.AnySource {
		return nil, pml.NoMessage(), false, nil
	}
	err := w.c.watchableNode.SourceError(src, w.plane)
	if err != nil && len(w.arrivedMessages) > 0 { // Its message may be among them.
		w.mustRecheck, err = true, nil
	}
	return nil, pml.NoMessage(), false, err
}

// probe is a blocked probe, which repeats after an arrival on the node.
type probe struct {
	wake progress.Completion
	// stopNetwork ends the network's probe. It is nil if the message must come from the node.
	stopNetwork context.CancelCauseFunc
	// isWoken is set if stopNetwork was called to repeat the probe. The network may be a composition too, and in its probe
	// that call is not an arrival.
	isWoken bool
}

// errArrived is the cause that ends the network's probe after an arrival on the node.
var errArrived = errors.New("a message has arrived on the node")

// wakeProbes repeats blocked probes. Lock held.
func (w *wildcards) wakeProbes() {
	for _, p := range w.activeProbes {
		if p.stopNetwork != nil {
			p.isWoken = true
			p.stopNetwork(errArrived)
		} else if !p.wake.Done() {
			w.c.j.engine.Complete(&p.wake)
		}
	}
}

// await blocks until a message has arrived.
func (c *comm) await(ctx context.Context, src, tag int, plane pml.Plane, claim bool) (pml.Claimed, pml.Status, error) {
	if src != pml.AnySource {
		if k, st, err := awaitIn(ctx, c.partOf(src), src, tag, plane, claim); err != pml.ErrWatched {
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
			if k, st, ok, err = w.probeNetwork(tag, claim); ok || err != nil {
				return k, st, err
			}
			w.mustRecheck = true // The reason is checked again after settle.
		}
		p := new(probe)
		w.activeProbes = append(w.activeProbes, p)
		if src != pml.AnySource {
			err = e.Wait(ctx, &p.wake, nil)
		} else {
			k, st, err = w.awaitNetwork(ctx, p, tag, claim)
		}
		w.activeProbes = slices.DeleteFunc(w.activeProbes, func(x *probe) bool { return x == p })
		switch {
		case err != nil && p.isWoken:
		case err != nil:
			if k, st, ok, _ := w.find(src, tag, claim); ok { // It has arrived meanwhile.
				return k, st, nil
			}
			return nil, pml.NoMessage(), err
		case src == pml.AnySource:
			return k, st, nil
		}
	}
}

// awaitNetwork probes the network until a message arrives on the node. Lock held, and released meanwhile.
func (w *wildcards) awaitNetwork(ctx context.Context, p *probe, tag int, claim bool) (pml.Claimed, pml.Status, error) {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, p.stopNetwork = context.WithCancelCause(ctx)
	e := w.c.j.engine
	e.Release()
	defer e.Lock()
	defer p.stopNetwork(nil)
	return awaitIn(ctx, w.c.networkComm, pml.AnySource, tag, w.plane, claim)
}
