package kittest

import (
	"context"
	"runtime"
	"testing"
	"time"
)

// Other work occupies the only processor.
func TestWithin_ProcessorIsBusy_DoesNotReportAHang(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const limit = 120 * time.Millisecond
	ctx, stop := Within(t.Context(), limit)
	defer stop()
	for start := time.Now(); time.Since(start) < 4*limit; { // The scheduler preempts every 10 ms.
	}
	if err := context.Cause(ctx); err != nil {
		t.Error(err)
	}
	<-ctx.Done()
	if err := context.Cause(ctx); err == nil || err.Error() != "hung for 120ms" {
		t.Error(err)
	}
}
