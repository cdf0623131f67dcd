package mpi

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/pml"
)

// State of partitioned operations in an inspection.
const (
	partitionedState  = "partitioned: " // Prefix.
	partitionsUnready = " not ready"    // Suffix if the operation waits for this process.
)

// addPartitions adds the active partitioned operations of communicators that match to an inspection, in place of their
// messages.
func (e *process) addPartitions(ctx context.Context, x *pml.Inspection, match func(*Comm) bool) error {
	for _, c := range e.partitioning() {
		key := c.key()
		i := slices.IndexFunc(x.Comms, func(i pml.CommInspection) bool { return i.ID == key.Extended && i.Endpoint == key.Endpoint })
		if i >= 0 {
			c.partitions.hideMessages(c, &x.Comms[i])
		}
		if !match(c) {
			continue
		}
		err := c.rankState.engine.Observe(ctx, func() {
			if i < 0 && c.partitions.activeCount > 0 {
				i = len(x.Comms)
				x.Comms = append(x.Comms, pml.CommInspection{ID: key.Extended, Endpoint: key.Endpoint, Local: c.spec.Local})
			}
			c.partitions.addTo(x, i)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// partitioning returns the communicators with partitioned operations.
func (e *process) partitioning() (all []*Comm) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.openComms {
		if c.partitions.isUsed.Load() {
			all = append(all, c)
		}
	}
	return all
}

// hideMessages removes the messages of partitioned operations from an inspection.
func (p *partitions) hideMessages(c *Comm, x *pml.CommInspection) {
	isOwn := func(q pml.Pending) bool { return q.Plane == pml.Control && q.Tag == c.tagMax }
	x.Posted = slices.DeleteFunc(x.Posted, isOwn)
	x.Sends = slices.DeleteFunc(x.Sends, isOwn)
}

// addTo adds the active operations to x.Comms[i].
func (p *partitions) addTo(x *pml.Inspection, i int) {
	for _, ch := range p.channelsByPeer {
		for _, o := range ch.operations {
			switch {
			case !o.isActive:
			case o.isSend:
				x.Comms[i].Sends = append(x.Comms[i].Sends, o.pending())
			default:
				x.Comms[i].Posted = append(x.Comms[i].Posted, o.pending())
			}
		}
	}
}

// pending describes an active operation.
func (o *partitioned) pending() pml.Pending {
	p := pml.Pending{Peer: o.peer, Tag: o.tag, Bytes: int64(len(o.buf)), Plane: pml.PointToPoint, State: partitionedState, Wait: o.Awaited()}
	switch {
	case !o.isSend:
		p.State += partitionsText(o.partitionCount, func(i int) bool { return o.partitionSize == 0 || o.recv.missingBytes[i] > 0 }) + " not arrived"
	case o.send.readyCount < o.partitionCount:
		p.State += partitionsText(o.partitionCount, func(i int) bool { return o.send.states[i] == unready }) + partitionsUnready
	case !o.send.isClear:
		p.State += "all partitions ready, receive not started"
	default:
		p.State += "all partitions ready, not all sent"
	}
	return p
}

// mostSpans is the number of spans that partitionsText lists.
const mostSpans = 8

// partitionsText is "partitions 0, 3 to 7", for those that match.
func partitionsText(n int, match func(int) bool) string {
	var spans []string
	count, more := 0, 0
	for i := 0; i < n; i++ {
		if !match(i) {
			continue
		}
		first := i
		for i+1 < n && match(i+1) {
			i++
		}
		count += i - first + 1
		switch {
		case len(spans) == mostSpans:
			more += i - first + 1
		case first == i:
			spans = append(spans, fmt.Sprint(i))
		default:
			spans = append(spans, fmt.Sprintf("%d to %d", first, i))
		}
	}
	text := "partitions "
	if count == 1 {
		text = "partition "
	}
	text += strings.Join(spans, ", ")
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
