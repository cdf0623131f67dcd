package otelmpi

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
)

// Attributes of metrics and spans.
const (
	// Of metrics. The rank is that in the job, and the namespace is set for peers of other jobs. The transport is
	// "none" until one is chosen, and the direction is "sent" or "received".
	keyJobRank       = "ferry.rank"
	keyPeer          = "ferry.peer.rank"
	keyPeerNamespace = "ferry.peer.namespace"
	keyTransport     = "ferry.transport"
	keyDirection     = "ferry.direction"

	// Of collective operations.
	keyOperation = "ferry.collective.operation"
	keySequence  = "ferry.collective.sequence"
	keyBytes     = "ferry.collective.size"
	keyComm      = "ferry.communicator.id"
	keyCommName  = "ferry.communicator.name"
	keyRank      = "ferry.communicator.rank"
	keySize      = "ferry.communicator.size"
)

// instruments are the OpenTelemetry instruments of the metrics.
type instruments struct {
	messages, payloadBytes metric.Int64ObservableCounter
	unexpected, dropped    metric.Int64ObservableCounter
	reconnects, resent     metric.Int64ObservableCounter
	receiveWait            metric.Float64ObservableCounter
	collectiveDuration     metric.Float64Histogram
}

func (i *instruments) create(m metric.Meter) error {
	var errs []error
	counter := func(name, unit, description string) metric.Int64ObservableCounter {
		c, err := m.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
		errs = append(errs, err)
		return c
	}
	i.messages = counter("ferry.messages", "{message}", "Messages sent to the peer or received from it, including those of collectives.")
	i.payloadBytes = counter("ferry.payload", "By", "Payload of messages sent to the peer or received from it.")
	i.unexpected = counter("ferry.messages.unexpected", "{message}", "Messages that arrived before their receive was posted.")
	i.dropped = counter("ferry.messages.dropped", "{message}", "Messages for closed communicators.")
	i.reconnects = counter("ferry.reconnects", "{connection}", "Connections reestablished after a loss.")
	i.resent = counter("ferry.frames.resent", "{frame}", "Frames retransmitted by the transport.")
	var err error
	i.receiveWait, err = m.Float64ObservableCounter("ferry.receive.wait", metric.WithUnit("s"),
		metric.WithDescription("Time from the posting of receives to the arrival of their messages from the peer."))
	errs = append(errs, err)
	i.collectiveDuration, err = m.Float64Histogram("ferry.collective.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of collective operations in this process, including waits for other processes."),
		metric.WithExplicitBucketBoundaries(1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, .1, .3, 1, 3, 10, 30))
	return errors.Join(append(errs, err)...)
}

func (i *instruments) observables() []metric.Observable {
	return []metric.Observable{i.messages, i.payloadBytes, i.unexpected, i.dropped, i.reconnects, i.resent, i.receiveWait}
}

// series identifies the totals of a peer over one transport.
type series struct {
	peer      mpi.Proc
	transport string
}

// counts never decrease.
type counts struct {
	sent, received, sentBytes, receivedBytes uint64
	unexpected, dropped, reconnects, resent  uint64
	waited                                   time.Duration
}

func (c counts) add(d counts) counts {
	c.sent += d.sent
	c.received += d.received
	c.sentBytes += d.sentBytes
	c.receivedBytes += d.receivedBytes
	c.unexpected += d.unexpected
	c.dropped += d.dropped
	c.reconnects += d.reconnects
	c.resent += d.resent
	c.waited += d.waited
	return c
}

func (c counts) sub(d counts) counts {
	return counts{
		c.sent - d.sent, c.received - d.received, c.sentBytes - d.sentBytes, c.receivedBytes - d.receivedBytes,
		c.unexpected - d.unexpected, c.dropped - d.dropped, c.reconnects - d.reconnects, c.resent - d.resent,
		c.waited - d.waited,
	}
}

// waitTimes accumulates the waits of receives by peer. Hooks call add with the engine's lock held, so code under mu must
// not call the engine.
type waitTimes struct {
	mu     sync.Mutex
	byPeer map[framework.Incarnation]time.Duration
}

func (w *waitTimes) add(peer framework.Incarnation, d time.Duration) {
	w.mu.Lock()
	w.byPeer[peer] += d
	w.mu.Unlock()
}

func (w *waitTimes) total(peer framework.Incarnation) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.byPeer[peer]
}

// updateTotals adds the counts since the last update. They go to the transport in use at the update, so no total decreases
// when a peer changes its transport.
func (t *Telemetry) updateTotals() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.sessions) > 0 {
		peers := t.sessions[0].Stats().Peers
		if len(peers) == 0 && t.isClosed(t.sessions[0]) {
			t.sessions = t.sessions[1:]
			continue
		}
		t.addPeers(peers)
		return
	}
}

func (t *Telemetry) isClosed(s *mpi.Session) bool {
	_, err := s.Psets(context.Background())
	return errors.Is(err, mpi.ErrClosed)
}

// addPeers adds the counts of peers. A process served by two protocols is listed twice. The caller holds mu.
func (t *Telemetry) addPeers(peers []mpi.PeerStats) {
	current := map[framework.Incarnation]counts{}
	identities := map[framework.Incarnation]series{}
	for _, p := range peers {
		current[p.Incarnation] = current[p.Incarnation].add(counts{
			sent: p.Sent, received: p.Received, sentBytes: p.SentBytes, receivedBytes: p.ReceivedBytes,
			unexpected: p.Unexpected, dropped: p.Dropped, reconnects: p.Reconnects, resent: p.Resent,
		})
		if s := (series{p.Proc, p.Transport}); p.Transport != "" || identities[p.Incarnation].transport == "" {
			identities[p.Incarnation] = s
		}
	}
	for life, c := range current {
		c.waited = t.waitTimes.total(life)
		s := identities[life]
		if s.transport == "" {
			s.transport = "none"
		}
		last := t.previousCounts[life]
		if c.sent < last.sent || c.received < last.received { // All sessions were closed, which resets the counts.
			last = counts{waited: last.waited}
		}
		t.totalsBySeries[s] = t.totalsBySeries[s].add(c.sub(last))
		t.previousCounts[life] = c
	}
}

// observe reports the totals. OpenTelemetry calls it when a reader collects.
func (t *Telemetry) observe(_ context.Context, o metric.Observer) error {
	t.updateTotals()
	t.mu.Lock()
	defer t.mu.Unlock()
	for s, c := range t.totalsBySeries {
		base := []attribute.KeyValue{
			attribute.Int(keyJobRank, int(t.ownProc.Rank)), attribute.Int(keyPeer, int(s.peer.Rank)), attribute.String(keyTransport, s.transport),
		}
		if s.peer.Namespace != t.ownProc.Namespace {
			base = append(base, attribute.String(keyPeerNamespace, s.peer.Namespace))
		}
		with := func(more ...attribute.KeyValue) metric.MeasurementOption {
			return metric.WithAttributeSet(attribute.NewSet(append(base[:len(base):len(base)], more...)...))
		}
		all, sent, received := with(), with(attribute.String(keyDirection, "sent")), with(attribute.String(keyDirection, "received"))
		o.ObserveInt64(t.instruments.messages, int64(c.sent), sent)
		o.ObserveInt64(t.instruments.messages, int64(c.received), received)
		o.ObserveInt64(t.instruments.payloadBytes, int64(c.sentBytes), sent)
		o.ObserveInt64(t.instruments.payloadBytes, int64(c.receivedBytes), received)
		o.ObserveInt64(t.instruments.unexpected, int64(c.unexpected), all)
		o.ObserveInt64(t.instruments.dropped, int64(c.dropped), all)
		o.ObserveInt64(t.instruments.reconnects, int64(c.reconnects), all)
		o.ObserveInt64(t.instruments.resent, int64(c.resent), all)
		o.ObserveFloat64(t.instruments.receiveWait, c.waited.Seconds(), all)
	}
	return nil
}
