package kittest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/framework/kittest"
)

var errSour = errors.New("sour")

// No step after a failure runs, including those of goroutines that wait for each other. Cleanup runs in reverse order.
func TestRun_Failure_EndsAllGoroutinesAndCleansUp(t *testing.T) {
	var closed []string
	err := kittest.Run(t.Context(), func(k *kittest.T) {
		k.Cleanup(func() error { closed = append(closed, "first"); return nil })
		k.Cleanup(func() error { closed = append(closed, "last"); return errors.New("left behind") })
		k.Each(3, func(i int) {
			if i == 1 {
				k.Check(nil, errSour)
			}
			<-k.Context().Done()
			k.Check(context.Cause(k.Context()))
		})
		closed = append(closed, "went on")
	})
	if !errors.Is(err, errSour) || err.Error() != "sour\nleft behind" || !slices.Equal(closed, []string{"last", "first"}) {
		t.Errorf("%v; closed %q", err, closed)
	}
}

// A case that does not apply fails if its cleanup fails.
func TestRun_SkippedWithFailure_Fails(t *testing.T) {
	skipped := func(left error) error {
		return kittest.Run(t.Context(), func(k *kittest.T) {
			k.Cleanup(func() error { return left })
			k.Skipf("it has %d wings", 3)
		})
	}
	if err := skipped(nil); !errors.Is(err, kittest.ErrSkip) || !strings.Contains(err.Error(), "3 wings") {
		t.Error(err)
	}
	if err := skipped(errSour); errors.Is(err, kittest.ErrSkip) || !errors.Is(err, errSour) {
		t.Error(err)
	}
}

// The case ignores its context. The error has the output of OnHang.
func TestRun_CaseHangs_ReturnsHangReport(t *testing.T) {
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, errSour)
	defer cancel()
	release := make(chan struct{})
	defer close(release)
	err := kittest.Run(ctx, func(k *kittest.T) {
		k.OnHang(func() string { return "rank 1 waits" })
		<-release
	})
	if !errors.Is(err, errSour) || !strings.Contains(err.Error(), "rank 1 waits") {
		t.Error(err)
	}
}

func TestBind_SeveralClaims_GetSeparateEnvironments(t *testing.T) {
	opened := 0
	cases := kittest.Bind([]kittest.Claim[int, int]{
		kittest.New("Doubled", 2, func(w int) {}),
		kittest.New("Fails", 3, func(w int) {}),
	}, func(k *kittest.T, needs int) int {
		if opened++; needs == 3 {
			k.Fatalf("a world of %d", needs)
		}
		return needs
	})
	errs := cases.Check(t.Context())
	if opened != 2 || len(errs) != 1 || errs[0].Error() != "Fails: a world of 3" {
		t.Errorf("%d opened: %v", opened, errs)
	}
	if _, ok := cases.Named("Doubled"); !ok || !slices.Equal(cases.Names(), []string{"Doubled", "Fails"}) {
		t.Error(cases.Names())
	}
}
