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

// ended is a collective operation that is over.
type ended struct {
	span      trace.Span
	at        time.Time
	took      time.Duration
	err       error
	operation attribute.KeyValue
	histogram metric.Float64Histogram
}

// end tells OpenTelemetry. It may block, as exporters do.
func (e *ended) end(ctx context.Context) {
	if e.err != nil {
		e.span.RecordError(e.err, trace.WithTimestamp(e.at))
		e.span.SetStatus(codes.Error, e.err.Error())
	}
	e.span.End(trace.WithTimestamp(e.at))
	e.histogram.Record(trace.ContextWithSpan(ctx, e.span), e.took.Seconds(), metric.WithAttributes(e.operation))
}

// spans are those of nonblocking operations, which are over with the engine's lock held,
// while ending a span may block: a goroutine ends them, which lives as long as there are any.
type spans struct {
	mu   sync.Mutex
	over []ended
	done chan struct{} // closed when the goroutine ends; nil: there is none
}

// later has a span ended soon. It doesn't block.
func (s *spans) later(e ended) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over = append(s.over, e); s.done == nil {
		s.done = make(chan struct{})
		go s.run()
	}
}

func (s *spans) run() {
	for {
		s.mu.Lock()
		over := s.over
		s.over = nil
		if len(over) == 0 {
			close(s.done)
			s.done = nil
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		for i := range over {
			over[i].end(context.Background())
		}
	}
}

// drain waits until those that are over have ended.
func (s *spans) drain() {
	s.mu.Lock()
	done := s.done
	s.mu.Unlock()
	if done != nil {
		<-done
	}
}
