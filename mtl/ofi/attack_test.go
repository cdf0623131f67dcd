package ofi_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/attacktest"
	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mtl/ofi"
)

func TestAttack_LibraryFileOfAnotherUser_IsNotLoaded(t *testing.T) {
	if err := libfabric.Built(); err != nil {
		t.Skip(err)
	}
	file := attacktest.Library(t)
	c := ofi.Component()
	p := c.Params()
	ofi.SetLibrary(p, file, time.Minute)
	if v := c.Probe(t.Context(), p); v.Status != framework.StatusUnavailable || !strings.Contains(v.Why(), "belongs to user 65534") || !strings.Contains(v.Hint, "LD_LIBRARY_PATH") {
		t.Errorf("verdict %+v", v)
	}
	if _, err := open(t, func(p any) { ofi.SetLibrary(p, file, time.Minute) }); err == nil || !strings.Contains(err.Error(), "belongs to user 65534") {
		t.Error(err)
	}
}
