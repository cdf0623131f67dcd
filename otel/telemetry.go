// Package otelmpi exports OpenTelemetry metrics and traces of package mpi. Metrics count messages, bytes and waits by peer
// and transport. Each collective operation has a span. The package name differs from the folder, because programs
// import OpenTelemetry's package otel too.
//
//	telemetry, err := otelmpi.New()
//	session, err := mpi.OpenSession(ctx, mpi.WithHooks(telemetry))
//	telemetry.Watch(session)
//	...
//	telemetry.Flush() // Collects the last counts before the session closes.
//	session.Close()
//	telemetry.Close()
//
// The counts come from mpi.Session.Stats when a reader collects, without a cost per message. The hooks measure waits of
// receives, at the cost of two clock reads and a locked addition per message. They disable the fast path of blocking
// receives.
//
// The package is a module separate from ferry and uses OpenTelemetry's API only. The program sets providers and starts
// exporters.
package otelmpi

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/pml"
)

// scope is the name of the instrumentation scope of all metrics and spans.
const scope = "github.com/ferrympi/ferry/otel"

// Telemetry observes one process. Pass it to mpi.WithHooks. Sessions that are open at the same time share one. Methods may be
// called concurrently.
type Telemetry struct {
	tracer trace.Tracer

	instruments instruments
	callback    metric.Registration

	mu             sync.Mutex
	sessions       []*mpi.Session
	ownProc        mpi.Proc
	totalsBySeries map[series]counts
	// At the last update.
	previousCounts map[framework.Incarnation]counts

	waitTimes waitTimes
	spanQueue spanQueue
}

var _ mpi.CollectiveHooks = (*Telemetry)(nil)

// An Option configures New.
type Option func(*options)

type options struct {
	meterProvider  metric.MeterProvider
	tracerProvider trace.TracerProvider
}

// WithMeterProvider selects the provider of metrics. The default is OpenTelemetry's global provider.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(o *options) { o.meterProvider = p }
}

// WithTracerProvider selects the provider of spans. The default is OpenTelemetry's global provider.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(o *options) { o.tracerProvider = p }
}

// New creates hooks and registers their instruments. It returns the error of a meter provider that rejects an instrument.
// The caller must call Close.
func New(opts ...Option) (*Telemetry, error) {
	o := options{meterProvider: otel.GetMeterProvider(), tracerProvider: otel.GetTracerProvider()}
	for _, opt := range opts {
		opt(&o)
	}
	t := &Telemetry{
		tracer:         o.tracerProvider.Tracer(scope),
		totalsBySeries: map[series]counts{},
		previousCounts: map[framework.Incarnation]counts{},
	}
	t.waitTimes.byPeer = map[framework.Incarnation]time.Duration{}
	meter := o.meterProvider.Meter(scope)
	if err := t.instruments.create(meter); err != nil {
		return nil, err
	}
	var err error
	t.callback, err = meter.RegisterCallback(t.observe, t.instruments.observables()...)
	return t, err
}

// Watch adds the counts of a session to the metrics. The session must have been opened with mpi.WithHooks(t). Of several
// open sessions one is enough, because each has the counts of the process. Watch fails on a closed session.
func (t *Telemetry) Watch(s *mpi.Session) error {
	group, err := s.Group(context.Background(), bootstrap.PsetSelf)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ownProc = group.Members()[0]
	t.sessions = append(t.sessions, s)
	return nil
}

// Flush collects the current counts and waits for the spans of complete nonblocking collectives. Call it before the last
// session closes, which discards the counts.
func (t *Telemetry) Flush() {
	t.updateTotals()
	t.spanQueue.drain()
}

// Close unregisters the metrics. Spans of pending operations still end. The providers stay open.
func (t *Telemetry) Close() error {
	t.spanQueue.drain()
	return t.callback.Unregister()
}

// Event implements pml.Hooks.
func (t *Telemetry) Event(e pml.Event) {
	if e.Kind == pml.EventMatch {
		t.waitTimes.add(e.Peer, e.Waited)
	}
}

// Collective implements mpi.CollectiveHooks. It starts a child span of ctx, and the returned function ends it.
func (t *Telemetry) Collective(ctx context.Context, op mpi.CollectiveOp) func(error) {
	startedAt := time.Now()
	name := attribute.String(keyOperation, op.Name)
	_, span := t.tracer.Start(ctx, "mpi."+op.Name, trace.WithTimestamp(startedAt))
	if span.IsRecording() { // Attributes are the largest cost.
		span.SetAttributes(
			name,
			attribute.Int(keyRank, op.Comm.Rank()),
			attribute.Int(keySize, op.Comm.Size()),
			attribute.Int(keyBytes, op.Bytes),
			attribute.Int64(keySequence, int64(op.Seq)),
			attribute.String(keyComm, op.Comm.ID().String()),
			attribute.String(keyCommName, op.Comm.Name()),
		)
	}
	return func(err error) {
		end := endedCollective{span: span, duration: time.Since(startedAt), endedAt: time.Now(), err: err, operation: name, histogram: t.instruments.collectiveDuration}
		if errors.Is(err, mpi.ErrNoComm) { // Regular result of a split with an undefined color.
			end.err = nil
		}
		if op.Nonblocking {
			t.spanQueue.enqueue(end) // With the engine's lock held.
		} else {
			end.report(ctx)
		}
	}
}
