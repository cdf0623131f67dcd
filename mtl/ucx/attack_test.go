package ucx

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/attacktest"
	"github.com/ferrympi/ferry/internal/ucp"
)

func TestAttack_LibraryFileOfAnotherUser_IsNotLoaded(t *testing.T) {
	if err := ucp.Built(); err != nil {
		t.Skip(err)
	}
	file := attacktest.Library(t)
	p := &params{LibraryFile: file, SelftestTimeout: 10 * time.Second}
	if v := Component().Probe(t.Context(), p); v.Status != framework.StatusUnavailable || !strings.Contains(v.Why(), "belongs to user 65534") || !strings.Contains(v.Hint, "LD_LIBRARY_PATH") {
		t.Errorf("verdict %+v", v)
	}
	if _, err := loadLibrary(context.Background(), p); err == nil || !strings.Contains(err.Error(), "belongs to user 65534") {
		t.Error(err)
	}
}
