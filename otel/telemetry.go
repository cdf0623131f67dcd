// Package otelmpi gives a program that uses package mpi OpenTelemetry metrics and traces:
// messages, bytes and waiting per peer and transport, and a span for each collective
// operation. Its name is not that of its folder, since every program that uses it imports
// OpenTelemetry's own package otel too.
//
//	telemetry, err := otelmpi.New()
//	session, err := mpi.OpenSession(ctx, mpi.WithHooks(telemetry))
//	telemetry.Watch(session)
//	...
//	telemetry.Flush() // before the session closes: it takes the last counts
//	session.Close()
//	telemetry.Close()
//
// The counts come from mpi.Session.Stats when a reader collects, and cost nothing per
// message. The hooks measure how long receives wait, and cost two readings of the clock
// and a locked addition per message; a session with hooks also goes without the shortest path of
// a blocking receive.
//
// The package stands on mpi, pml and OpenTelemetry's API. It sets no provider, and starts
// no exporter: that is the program's to choose. It is a module of its own, so that
// programs that do not import it link nothing of OpenTelemetry.
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

// Telemetry observes one process: hooks for mpi.WithHooks. Sessions that are open at the
// same time share one. Its methods may be called concurrently.
type Telemetry struct {
	tracer trace.Tracer

	instruments instruments
	callback    metric.Registration

	mu       sync.Mutex
	sessions []*mpi.Session
	self     mpi.Proc
	totals   map[series]counts
	last     map[framework.Life]counts // at the last look

	waits waits
	spans spans
}

// Telemetry is hooks of both kinds.
var _ mpi.CollectiveHooks = (*Telemetry)(nil)

// An Option changes what New does.
type Option func(*options)

type options struct {
	meters  metric.MeterProvider
	tracers trace.TracerProvider
}

// WithMeterProvider has metrics go to p. Without it they go to OpenTelemetry's global
// provider.
func WithMeterProvider(p metric.MeterProvider) Option { return func(o *options) { o.meters = p } }

// WithTracerProvider has spans go to p. Without it they go to OpenTelemetry's global
// provider.
func WithTracerProvider(p trace.TracerProvider) Option { return func(o *options) { o.tracers = p } }

// New makes hooks, and the instruments that report what they see. The error is that of a
// meter provider that refuses an instrument. Close ends them.
func New(opts ...Option) (*Telemetry, error) {
	o := options{meters: otel.GetMeterProvider(), tracers: otel.GetTracerProvider()}
	for _, opt := range opts {
		opt(&o)
	}
	t := &Telemetry{
		tracer: o.tracers.Tracer(scope),
		totals: map[series]counts{},
		last:   map[framework.Life]counts{},
	}
	t.waits.by = map[framework.Life]time.Duration{}
	meter := o.meters.Meter(scope)
	if err := t.instruments.make(meter); err != nil {
		return nil, err
	}
	var err error
	t.callback, err = meter.RegisterCallback(t.observe, t.instruments.observed()...)
	return t, err
}

// Watch has metrics show the session's counts. The session has been opened with
// mpi.WithHooks(t). Of several that are open at the same time each shows the counts of
// all, and one is enough, as long as it is open. The error is that of a closed session.
func (t *Telemetry) Watch(s *mpi.Session) error {
	group, err := s.Group(context.Background(), bootstrap.PsetSelf)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.self = group.Members()[0]
	t.sessions = append(t.sessions, s)
	return nil
}

// Flush takes the counts as they are now, which would be lost when the last session closes,
// and waits until the spans of nonblocking collectives that are over have ended. Readers see
// both when they collect next.
func (t *Telemetry) Flush() {
	t.look()
	t.spans.drain()
}

// Close ends the metrics; spans of operations that are under way still end. The providers
// stay open: they are the program's.
func (t *Telemetry) Close() error {
	t.spans.drain()
	return t.callback.Unregister()
}

// Event implements pml.Hooks.
func (t *Telemetry) Event(e pml.Event) {
	if e.Kind == pml.EventMatch {
		t.waits.add(e.Peer, e.Waited)
	}
}

// Collective implements mpi.CollectiveHooks: it starts a span, below that of ctx, and the
// returned function ends it.
func (t *Telemetry) Collective(ctx context.Context, op mpi.CollectiveOp) func(error) {
	began := time.Now()
	name := attribute.String(keyOperation, op.Name)
	_, span := t.tracer.Start(ctx, "mpi."+op.Name, trace.WithTimestamp(began))
	if span.IsRecording() { // attributes cost more than the rest
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
		end := ended{span: span, took: time.Since(began), at: time.Now(), err: err, operation: name, histogram: t.instruments.collective}
		if errors.Is(err, mpi.ErrNoComm) { // a member of no part: that is how split answers
			end.err = nil
		}
		if op.Nonblocking {
			t.spans.later(end) // the engine's lock is held
		} else {
			end.end(ctx)
		}
	}
}
