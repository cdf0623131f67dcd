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
	keyJobRank   = "ferry.rank"           // metrics: this process's rank in the job
	keyPeer      = "ferry.peer.rank"      // metrics: the other process's
	keyPeerSpace = "ferry.peer.namespace" // metrics: of a peer of another job
	keyTransport = "ferry.transport"      // metrics: "shm"; "none" if there is none yet
	keyDirection = "ferry.direction"      // metrics: "sent", "received"
	keyOperation = "ferry.collective.operation"
	keySequence  = "ferry.collective.sequence"
	keyBytes     = "ferry.collective.size"
	keyComm      = "ferry.communicator.id"
	keyCommName  = "ferry.communicator.name"
	keyRank      = "ferry.communicator.rank"
	keySize      = "ferry.communicator.size"
)

// instruments are what the metrics are made of.
type instruments struct {
	messages, payload   metric.Int64ObservableCounter
	unexpected, dropped metric.Int64ObservableCounter
	reconnects, resent  metric.Int64ObservableCounter
	waited              metric.Float64ObservableCounter
	collective          metric.Float64Histogram
}

// make makes them.
func (i *instruments) make(m metric.Meter) error {
	var errs []error
	counter := func(name, unit, what string) metric.Int64ObservableCounter {
		c, err := m.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(what))
		errs = append(errs, err)
		return c
	}
	i.messages = counter("ferry.messages", "{message}", "Messages that went to the peer or came from it, collectives included.")
	i.payload = counter("ferry.payload", "By", "Payload of messages that went to the peer or came from it.")
	i.unexpected = counter("ferry.messages.unexpected", "{message}", "Messages that came before their receive.")
	i.dropped = counter("ferry.messages.dropped", "{message}", "Messages for communicators that were closed.")
	i.reconnects = counter("ferry.reconnects", "{connection}", "Connections that were made again after one was lost.")
	i.resent = counter("ferry.frames.resent", "{frame}", "Frames of the transport that went again.")
	var err error
	i.waited, err = m.Float64ObservableCounter("ferry.receive.wait", metric.WithUnit("s"),
		metric.WithDescription("Time for which receives were posted before their messages came from the peer."))
	errs = append(errs, err)
	i.collective, err = m.Float64Histogram("ferry.collective.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of collective operations in this process, waiting for others included."),
		metric.WithExplicitBucketBoundaries(1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, .1, .3, 1, 3, 10, 30))
	return errors.Join(append(errs, err)...)
}

// observed are those that observe reports.
func (i *instruments) observed() []metric.Observable {
	return []metric.Observable{i.messages, i.payload, i.unexpected, i.dropped, i.reconnects, i.resent, i.waited}
}

// series is what a metric has a number for.
type series struct {
	peer      mpi.Proc
	transport string
}

// counts only grow.
type counts struct {
	sent, received, sentBytes, receivedBytes uint64
	unexpected, dropped, reconnects, resent  uint64
	waited                                   time.Duration
}

// plus is the sum.
func (c counts) plus(d counts) counts {
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

// minus is what has come since d.
func (c counts) minus(d counts) counts {
	return counts{
		c.sent - d.sent, c.received - d.received, c.sentBytes - d.sentBytes, c.receivedBytes - d.receivedBytes,
		c.unexpected - d.unexpected, c.dropped - d.dropped, c.reconnects - d.reconnects, c.resent - d.resent,
		c.waited - d.waited,
	}
}

// waits is how long receives waited for each peer. Hooks add to it with the engine's lock
// held, so nothing is called with its own.
type waits struct {
	mu sync.Mutex
	by map[framework.Life]time.Duration
}

func (w *waits) add(peer framework.Life, d time.Duration) {
	w.mu.Lock()
	w.by[peer] += d
	w.mu.Unlock()
}

func (w *waits) of(peer framework.Life) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.by[peer]
}

// look adds to the totals what has come since the last look. A transport gets what came
// while it was in use, as far as looks can tell, so that no total shrinks when a peer
// changes to another.
func (t *Telemetry) look() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.sessions) > 0 {
		peers := t.sessions[0].Stats().Peers
		if len(peers) == 0 && t.closed(t.sessions[0]) {
			t.sessions = t.sessions[1:]
			continue
		}
		t.take(peers)
		return
	}
}

// closed reports whether a session that shows no peer is closed.
func (t *Telemetry) closed(s *mpi.Session) bool {
	_, err := s.Psets(context.Background())
	return errors.Is(err, mpi.ErrClosed)
}

// take takes the counts of peers. A process that two protocols serve is listed twice. The
// caller holds mu.
func (t *Telemetry) take(peers []mpi.PeerStats) {
	now := map[framework.Life]counts{}
	who := map[framework.Life]series{}
	for _, p := range peers {
		now[p.Life] = now[p.Life].plus(counts{
			sent: p.Sent, received: p.Received, sentBytes: p.SentBytes, receivedBytes: p.ReceivedBytes,
			unexpected: p.Unexpected, dropped: p.Dropped, reconnects: p.Reconnects, resent: p.Resent,
		})
		if s := (series{p.Proc, p.Transport}); p.Transport != "" || who[p.Life].transport == "" {
			who[p.Life] = s
		}
	}
	for life, c := range now {
		c.waited = t.waits.of(life)
		s := who[life]
		if s.transport == "" {
			s.transport = "none"
		}
		last := t.last[life]
		if c.sent < last.sent || c.received < last.received { // all sessions were closed since, and counts began again
			last = counts{waited: last.waited}
		}
		t.totals[s] = t.totals[s].plus(c.minus(last))
		t.last[life] = c
	}
}

// observe reports the totals: OpenTelemetry calls it when a reader collects.
func (t *Telemetry) observe(_ context.Context, o metric.Observer) error {
	t.look()
	t.mu.Lock()
	defer t.mu.Unlock()
	for s, c := range t.totals {
		base := []attribute.KeyValue{
			attribute.Int(keyJobRank, int(t.self.Rank)), attribute.Int(keyPeer, int(s.peer.Rank)), attribute.String(keyTransport, s.transport),
		}
		if s.peer.Namespace != t.self.Namespace {
			base = append(base, attribute.String(keyPeerSpace, s.peer.Namespace))
		}
		with := func(more ...attribute.KeyValue) metric.MeasurementOption {
			return metric.WithAttributeSet(attribute.NewSet(append(base[:len(base):len(base)], more...)...))
		}
		all, sent, received := with(), with(attribute.String(keyDirection, "sent")), with(attribute.String(keyDirection, "received"))
		o.ObserveInt64(t.instruments.messages, int64(c.sent), sent)
		o.ObserveInt64(t.instruments.messages, int64(c.received), received)
		o.ObserveInt64(t.instruments.payload, int64(c.sentBytes), sent)
		o.ObserveInt64(t.instruments.payload, int64(c.receivedBytes), received)
		o.ObserveInt64(t.instruments.unexpected, int64(c.unexpected), all)
		o.ObserveInt64(t.instruments.dropped, int64(c.dropped), all)
		o.ObserveInt64(t.instruments.reconnects, int64(c.reconnects), all)
		o.ObserveInt64(t.instruments.resent, int64(c.resent), all)
		o.ObserveFloat64(t.instruments.waited, c.waited.Seconds(), all)
	}
	return nil
}
