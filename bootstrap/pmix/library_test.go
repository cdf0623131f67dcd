package pmix

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/internal/libtest"
	"github.com/ferrympi/ferry/internal/pmixc"
	"github.com/ferrympi/ferry/internal/pmixc/testprov"
)

// TestLoad_FileDoesNotAnswer_EndsWithContext loads in a child process, twice.
func TestLoad_FileDoesNotAnswer_EndsWithContext(t *testing.T) {
	if err := pmixc.Built(); err != nil {
		t.Skip(err)
	}
	if !libtest.IsChild() {
		if out, err := libtest.InChild(t, "TestLoad_FileDoesNotAnswer_EndsWithContext"); err != nil {
			t.Errorf("%v:\n%s", err, out)
		}
		return
	}
	silent := libtest.NewUnresponsive(t)
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err := load(ctx, silent)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), silent) {
			t.Errorf("%v", err)
		}
	}
	libtest.Unblock(t, silent)
	loadSlot <- struct{}{} // The first load has returned.
	<-loadSlot
}

func TestLoad_TruncatedLibrary_FailsWithReason(t *testing.T) {
	if err := pmixc.Built(); err != nil {
		t.Skip(err)
	}
	if libtest.IsChild() {
		path := os.Getenv("LIBRARY")
		if _, err := load(t.Context(), path); err == nil || !strings.HasPrefix(err.Error(), path+" is damaged: ") {
			t.Errorf("%v", err)
		}
		return
	}
	if out, err := libtest.InChild(t, "TestLoad_TruncatedLibrary_FailsWithReason", "LIBRARY="+libtest.CopyTruncated(t, testprov.Library(t))); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}
