package otelmpi_test

import (
	"errors"
	"testing"

	"go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/ferrympi/ferry/mpi"
	otelmpi "github.com/ferrympi/ferry/otel"
)

// BenchmarkHooks measures the cost of telemetry for a message of this process to itself, and for a
// barrier whose span is not exported.
func BenchmarkHooks(b *testing.B) {
	for _, with := range []string{"without", "with"} {
		var options []mpi.SessionOption
		if with == "with" {
			meters, traces := metric.NewMeterProvider(metric.WithReader(metric.NewManualReader())), sdktrace.NewTracerProvider()
			t, err := otelmpi.New(otelmpi.WithMeterProvider(meters), otelmpi.WithTracerProvider(traces))
			if err != nil {
				b.Fatal(err)
			}
			options = append(options, mpi.WithHooks(t))
			b.Cleanup(func() {
				if err := errors.Join(t.Close(), meters.Shutdown(b.Context()), traces.Shutdown(b.Context())); err != nil {
					b.Log(err)
				}
			})
		}
		s, err := mpi.OpenSession(b.Context(), options...)
		if err != nil {
			b.Fatal(err)
		}
		self, err := s.Group(b.Context(), "mpi://SELF")
		if err != nil {
			b.Fatal(err)
		}
		c, err := mpi.CommFromGroup(b.Context(), self, "bench")
		if err != nil {
			b.Fatal(err)
		}
		ctx, out, in := b.Context(), make([]byte, 8), make([]byte, 8)
		b.Run(with+" message", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Sendrecv(ctx, out, 0, 0, in, 0, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(with+" barrier", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := mpi.Barrier(ctx, c); err != nil {
					b.Fatal(err)
				}
			}
		})
		if err := errors.Join(c.Close(), s.Close()); err != nil {
			b.Fatal(err)
		}
	}
}
