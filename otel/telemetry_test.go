package otelmpi_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
	otelmpi "github.com/ferrympi/ferry/otel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// observed is the telemetry of a rank with its readers.
type observed struct {
	*otelmpi.Telemetry
	reader *metric.ManualReader
	spans  *tracetest.InMemoryExporter
	trace  *sdktrace.TracerProvider
}

func observe(t *testing.T) observed {
	t.Helper()
	o := observed{reader: metric.NewManualReader(), spans: tracetest.NewInMemoryExporter()}
	meters := metric.NewMeterProvider(metric.WithReader(o.reader))
	o.trace = sdktrace.NewTracerProvider(sdktrace.WithSyncer(o.spans))
	var err error
	if o.Telemetry, err = otelmpi.New(otelmpi.WithMeterProvider(meters), otelmpi.WithTracerProvider(o.trace)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		if err := errors.Join(o.Close(), meters.Shutdown(ctx), o.trace.Shutdown(ctx)); err != nil {
			t.Error(err)
		}
	})
	return o
}

// number returns the sum of the points of a metric with all those attributes.
func (o observed) number(ctx context.Context, name string, with ...attribute.KeyValue) (float64, error) {
	var all metricdata.ResourceMetrics
	if err := o.reader.Collect(ctx, &all); err != nil {
		return 0, err
	}
	sum, found := 0.0, false
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			if m.Name != name {
				continue
			}
			add := func(a attribute.Set, v float64) {
				for _, w := range with {
					if got, _ := a.Value(w.Key); got != w.Value {
						return
					}
				}
				sum, found = sum+v, true
			}
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					add(p.Attributes, float64(p.Value))
				}
			case metricdata.Sum[float64]:
				for _, p := range d.DataPoints {
					add(p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					add(p.Attributes, float64(p.Count))
				}
			}
		}
	}
	if !found {
		return 0, fmt.Errorf("metric %s: no points with %v", name, with)
	}
	return sum, nil
}

func (o observed) want(ctx context.Context, want float64, name string, with ...attribute.KeyValue) error {
	if got, err := o.number(ctx, name, with...); err != nil || got != want {
		return fmt.Errorf("metric %s with %v is %v, want %v (%w)", name, with, got, want, err)
	}
	return nil
}

// runObserved runs f in ranks with observed sessions.
func runObserved(t *testing.T, n int, f func(context.Context, *mpi.Session, *mpi.Comm, observed) error) {
	t.Helper()
	all := make([]observed, n)
	for i := range all {
		all[i] = observe(t)
	}
	mpitest.Job{Size: n}.RunSessions(t, func(ctx context.Context) error {
		rank := int(mpitest.Client(ctx).Identity().Proc.Rank)
		o := all[rank]
		s, err := mpitest.Open(ctx, mpi.WithHooks(o))
		if err != nil {
			return err
		}
		if err := o.Watch(s); err != nil {
			return err
		}
		world, err := s.Group(ctx, "mpi://WORLD")
		if err != nil {
			return err
		}
		c, err := mpi.CommFromGroup(ctx, world, "telemetry")
		if err != nil {
			return err
		}
		if err := f(ctx, s, c, o); err != nil {
			return err
		}
		if err := c.Close(); err != nil && !errors.Is(err, mpi.ErrClosed) {
			return err
		}
		if err := s.Close(); err != nil && !errors.Is(err, mpi.ErrClosed) {
			return err
		}
		return nil
	})
}

var (
	sent     = attribute.String("ferry.direction", "sent")
	received = attribute.String("ferry.direction", "received")
	shm      = attribute.String("ferry.transport", "shm")
)

func peer(rank int) attribute.KeyValue { return attribute.Int("ferry.peer.rank", rank) }

const late = 50 * time.Millisecond

func TestMetrics_Messages_AreCountedByPeerAndTransport(t *testing.T) {
	runObserved(t, 2, func(ctx context.Context, _ *mpi.Session, c *mpi.Comm, o observed) error {
		if c.Rank() == 1 {
			if _, err := c.Recv(ctx, nil, 0, 0); err != nil {
				return err
			}
			time.Sleep(late) // rank 0 waits in its receive
			return c.Send(ctx, make([]byte, 100), 0, 1)
		}
		r, err := c.Irecv(make([]byte, 100), 1, 1)
		if err != nil {
			return err
		}
		if err := c.Send(ctx, nil, 1, 0); err != nil {
			return err
		}
		if _, err := r.Wait(ctx); err != nil {
			return err
		}
		waited, err := o.number(ctx, "ferry.receive.wait", peer(1), shm)
		if waited < late.Seconds() {
			err = errors.Join(err, fmt.Errorf("receives waited %v s for rank 1, want at least %v", waited, late))
		}
		return errors.Join(err,
			o.want(ctx, 1, "ferry.messages", peer(1), shm, sent, attribute.Int("ferry.rank", 0)),
			o.want(ctx, 1, "ferry.messages", peer(1), shm, received),
			o.want(ctx, 0, "ferry.payload", peer(1), shm, sent),
			o.want(ctx, 100, "ferry.payload", peer(1), shm, received),
		)
	})
}

func TestMetrics_SessionCloses_KeepTheirTotals(t *testing.T) {
	runObserved(t, 1, func(ctx context.Context, s *mpi.Session, c *mpi.Comm, o observed) error {
		once := func(c *mpi.Comm) error {
			_, err := c.Sendrecv(ctx, make([]byte, 10), 0, 0, make([]byte, 10), 0, 0)
			return err
		}
		if err := once(c); err != nil {
			return err
		}
		o.Flush()
		if err := errors.Join(c.Close(), s.Close(), o.want(ctx, 10, "ferry.payload", sent)); err != nil {
			return err
		}
		s, err := mpitest.Open(ctx, mpi.WithHooks(o))
		if err != nil {
			return err
		}
		if err := o.Watch(s); err != nil {
			return err
		}
		self, err := s.Group(ctx, "mpi://SELF")
		if err != nil {
			return err
		}
		if c, err = mpi.CommFromGroup(ctx, self, "again"); err != nil {
			return err
		}
		err = errors.Join(once(c), o.want(ctx, 20, "ferry.payload", sent))
		return errors.Join(err, c.Close(), s.Close())
	})
}

func TestWatch_ClosedSession_ReturnsError(t *testing.T) {
	runObserved(t, 1, func(_ context.Context, s *mpi.Session, c *mpi.Comm, o observed) error {
		if err := errors.Join(c.Close(), s.Close()); err != nil {
			return err
		}
		if err := o.Watch(s); !errors.Is(err, mpi.ErrClosed) {
			return fmt.Errorf("Watch: %v", err)
		}
		return nil
	})
}

func TestSpans_Collectives_AreChildrenOfTheCaller(t *testing.T) {
	runObserved(t, 2, func(ctx context.Context, _ *mpi.Session, c *mpi.Comm, o observed) error {
		ctx, step := o.trace.Tracer("test").Start(ctx, "step")
		sum := make([]int64, 4)
		if err := errors.Join(mpi.Barrier(ctx, c), mpi.Allreduce(ctx, c, nil, sum, mpi.Sum[int64]())); err != nil {
			return err
		}
		r, err := mpi.Iallreduce(c, nil, sum, mpi.Sum[int64]())
		if err != nil {
			return err
		}
		if _, err := r.Wait(ctx); err != nil {
			return err
		}
		step.End()
		o.Flush()
		found := map[string]tracetest.SpanStub{}
		for _, s := range o.spans.GetSpans() {
			found[s.Name] = s
		}
		last := int64(-1)
		for _, name := range []string{"mpi.barrier", "mpi.allreduce", "mpi.iallreduce"} {
			s, ok := found[name]
			if !ok {
				return fmt.Errorf("no span %s in %v", name, found)
			}
			if s.EndTime.Before(s.StartTime) || s.Status.Code == codes.Error {
				return fmt.Errorf("%s: from %v to %v, %v", name, s.StartTime, s.EndTime, s.Status)
			}
			if below := s.Parent.SpanID() == step.SpanContext().SpanID(); below != (name != "mpi.iallreduce") {
				return fmt.Errorf("%s: below the caller's span: %t", name, below)
			}
			attrs := attribute.NewSet(s.Attributes...)
			seq, _ := attrs.Value("ferry.collective.sequence")
			if seq.AsInt64() <= last {
				return fmt.Errorf("%s: sequence number %d after %d", name, seq.AsInt64(), last)
			}
			last = seq.AsInt64()
			for _, want := range []attribute.KeyValue{
				attribute.Int("ferry.communicator.rank", c.Rank()),
				attribute.Int("ferry.communicator.size", 2), attribute.String("ferry.communicator.id", c.ID().String()),
				attribute.String("ferry.communicator.name", "telemetry"),
			} {
				if got, _ := attrs.Value(want.Key); got != want.Value {
					return fmt.Errorf("%s: %s is %v", name, want.Key, got.String())
				}
			}
		}
		return o.want(ctx, 1, "ferry.collective.duration", attribute.String("ferry.collective.operation", "iallreduce"))
	})
}

func TestSpans_FailedCollective_RecordsTheError(t *testing.T) {
	runObserved(t, 1, func(ctx context.Context, _ *mpi.Session, c *mpi.Comm, o observed) error {
		func() {
			defer func() { _ = recover() }()
			key := mpi.NewKey(mpi.KeyHooks[int]{Copy: func(int) (int, bool) { panic("bad") }})
			_ = mpi.SetAttr(c, key, 1)
			_, _ = c.Idup()
		}()
		for _, s := range o.spans.GetSpans() {
			if s.Name == "mpi.idup" && s.Status.Code == codes.Error && len(s.Events) == 1 {
				return nil
			}
		}
		return fmt.Errorf("%v", o.spans.GetSpans())
	})
}

func TestSpans_SplitUndefinedColor_RecordsNoError(t *testing.T) {
	runObserved(t, 1, func(ctx context.Context, _ *mpi.Session, c *mpi.Comm, o observed) error {
		if _, err := c.Split(ctx, mpi.Undefined, 0); !errors.Is(err, mpi.ErrNoComm) {
			return err
		}
		spans := o.spans.GetSpans()
		if len(spans) != 1 || spans[0].Name != "mpi.split" || spans[0].Status.Code != codes.Unset {
			return fmt.Errorf("%v", spans)
		}
		return nil
	})
}
