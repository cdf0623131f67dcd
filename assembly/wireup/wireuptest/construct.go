package wireuptest

import (
	"context"
	"slices"
	"time"

	"github.com/ferrympi/ferry/assembly/wireup"
	"github.com/ferrympi/ferry/framework"
)

// constructKey identifies the constructs that match.
type constructKey struct {
	level, firstMember int
	levelKey           uint64
}

// construct is a group construct. The members send their payloads to the first one, which sends them to all.
type construct struct {
	comm     *comm
	payloads [][]byte
	// At the first member.
	payloadArrivals []time.Duration
	chainDepth      int
	joinedCount     int
	// By member; nil while members are missing.
	resultArrivals []time.Duration
	err            error
}

// construct enters a construct, and waits for its end.
func (p *process) construct(l wireup.Level, levels uint64, payload []byte, deadline time.Duration) (wireup.Comm, [][]byte, error) {
	w, key := p.world, constructKey{l.Number, l.Members[0], levels}
	if p.isCanceled {
		return nil, nil, context.Canceled
	}
	if failed := w.reported(l.Members); failed != nil {
		return nil, nil, failed
	}
	c := w.constructs[key]
	if c == nil {
		c = &construct{comm: &comm{level: l, boxByEnds: map[[2]int]*box{}}, payloads: make([][]byte, len(l.Members)), payloadArrivals: make([]time.Duration, len(l.Members))}
		w.constructs[key] = c
	}
	n := w.Machine.Launcher
	p.clock += n.Overhead
	c.payloads[l.SelfIndex], c.payloadArrivals[l.SelfIndex] = payload, p.clock
	if l.SelfIndex > 0 {
		p.counts.LauncherBytes += int64(len(payload))
		c.payloadArrivals[l.SelfIndex] += w.latency(n) + n.bytes(len(payload))
		c.chainDepth = max(c.chainDepth, p.chainDepth+1)
	}
	c.chainDepth = max(c.chainDepth, p.chainDepth)
	if c.joinedCount++; c.joinedCount == len(l.Members) {
		delete(w.constructs, key)
		w.complete(c)
	}
	isExpired := p.wait(deadline, func() bool { return c.resultArrivals != nil || c.err != nil || p.isCanceled })
	switch {
	case c.resultArrivals != nil:
		p.clock = max(p.clock, c.resultArrivals[l.SelfIndex])
		p.chainDepth = max(p.chainDepth, c.chainDepth)
		if l.SelfIndex > 0 {
			p.chainDepth = max(p.chainDepth, c.chainDepth+1)
		}
		return &end{comm: c.comm, process: p, selfIndex: l.SelfIndex}, c.payloads, nil
	case c.err != nil:
		return nil, nil, c.err
	case p.isCanceled:
		c.payloads[l.SelfIndex] = nil
		c.joinedCount--
		return nil, nil, context.Canceled
	}
	if isExpired {
		m := &framework.MissingError{Op: "group construct", Tag: "level"}
		for i, member := range l.Members {
			if c.payloads[i] == nil {
				m.Missing = append(m.Missing, w.layout.Proc(member))
			}
		}
		w.fail(key, m, p.clock)
	}
	return nil, nil, c.err
}

// complete sends the result of a construct to its members.
func (w *world) complete(c *construct) {
	n, members := w.Machine.Launcher, c.comm.level.Members
	total := 0
	for _, b := range c.payloads {
		total += len(b)
	}
	clock := time.Duration(0)
	for _, at := range slices.Sorted(slices.Values(c.payloadArrivals)) {
		clock = max(clock, at) + n.Overhead
	}
	c.resultArrivals = make([]time.Duration, len(members))
	first := w.procs[members[0]]
	first.counts.LauncherBytes += int64(total) * int64(len(members)-1)
	for i := len(members) - 1; i > 0; i-- {
		clock += n.Overhead + n.bytes(total)
		c.resultArrivals[i] = clock + w.latency(n)
	}
	c.resultArrivals[0] = clock
	for _, i := range shuffle(w.Random, len(members)) {
		p, at := w.procs[members[i]], c.resultArrivals[i]
		w.after(at, func() { p.wake(at) })
	}
}

// fail ends a construct with an error in all that wait.
func (w *world) fail(key constructKey, err error, at time.Duration) {
	c := w.constructs[key]
	delete(w.constructs, key)
	c.err = err
	for i, member := range c.comm.level.Members {
		if p := w.procs[member]; c.payloads[i] != nil {
			w.after(at, func() { p.wake(at) })
		}
	}
}

// reported returns the error for members that have been reported dead, or nil.
func (w *world) reported(members []int) error {
	var failed []framework.Proc
	for _, m := range members {
		if len(w.faultByMember) == 0 {
			break
		}
		if w.procs[m].isReported {
			failed = append(failed, w.layout.Proc(m))
		}
	}
	if failed == nil {
		return nil
	}
	return &framework.MissingError{Op: "group construct", Tag: "level", Failed: failed}
}

// failConstructs ends the constructs that wait for a member that has died.
func (w *world) failConstructs(member int) {
	var keys []constructKey
	for key, c := range w.constructs {
		if slices.Contains(c.comm.level.Members, member) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b constructKey) int { return a.level - b.level })
	for _, key := range keys {
		w.fail(key, w.reported(w.constructs[key].comm.level.Members), w.procs[member].clock+w.Machine.DeathReportDelay)
	}
}
