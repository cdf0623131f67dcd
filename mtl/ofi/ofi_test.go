package ofi_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/mtl/ofi"
)

// subject sets the parameters of a provider.
func subject(provider, layout, wait string) mtltest.Factory {
	return func(context.Context) (mtltest.Subject, error) {
		c := ofi.Component()
		return mtltest.Subject{
			Component: c,
			Params:    func(_ int, p any) { ofi.Set(p, provider, layout, wait) },
		}, nil
	}
}

func needLibfabric(t *testing.T) {
	t.Helper()
	if _, err := libfabric.Load("libfabric.so.1"); err != nil {
		if errors.Is(err, libfabric.ErrNotBuilt) {
			t.Skip(err)
		}
		t.Skipf("%v: install libfabric1", err)
	}
}

func TestKit(t *testing.T) {
	needLibfabric(t)
	for _, p := range []string{"tcp;ofi_rxm", "net;ofi_rxm"} {
		t.Run(p, func(t *testing.T) { mtltest.Run(t, subject(p, "auto", "auto")) })
	}
}
