package otelmpi

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// endedCollective is a complete collective operation.
type endedCollective struct {
	span      trace.Span
	endedAt   time.Time
	duration  time.Duration
	err       error
	operation attribute.KeyValue
	histogram metric.Float64Histogram
}

// report ends the span and records the duration. It may block in an exporter.
func (e *endedCollective) report(ctx context.Context) {
	if e.err != nil {
		e.span.RecordError(e.err, trace.WithTimestamp(e.endedAt))
		e.span.SetStatus(codes.Error, e.err.Error())
	}
	e.span.End(trace.WithTimestamp(e.endedAt))
	e.histogram.Record(trace.ContextWithSpan(ctx, e.span), e.duration.Seconds(), metric.WithAttributes(e.operation))
}

// spanQueue has the spans of nonblocking operations. They complete with the engine's lock held, and ending a span may
// block, so a goroutine ends them. It exits when the queue is empty.
type spanQueue struct {
	mu        sync.Mutex
	completed []endedCollective
	// Closed when the goroutine exits. Nil without one.
	runDone chan struct{}
}

// enqueue does not block.
func (s *spanQueue) enqueue(e endedCollective) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.completed = append(s.completed, e); s.runDone == nil {
		s.runDone = make(chan struct{})
		go s.run()
	}
}

func (s *spanQueue) run() {
	for {
		s.mu.Lock()
		batch := s.completed
		s.completed = nil
		if len(batch) == 0 {
			close(s.runDone)
			s.runDone = nil
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		for i := range batch {
			batch[i].report(context.Background())
		}
	}
}

// drain waits until all queued spans have ended.
func (s *spanQueue) drain() {
	s.mu.Lock()
	done := s.runDone
	s.mu.Unlock()
	if done != nil {
		<-done
	}
}
