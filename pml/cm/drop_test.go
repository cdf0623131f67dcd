package cm_test

import (
	"testing"

	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// The MTL keeps endpoints, of less than 1 KiB each.
func TestModule_ProcessesComeAndGo_MemoryIsBounded(t *testing.T) {
	needs.Time(t)
	t.Run("ofi", func(t *testing.T) { pmltest.Visits(t, overOFI(t, "tcp;ofi_rxm", 0), 200) })
	t.Run("ucx", func(t *testing.T) { pmltest.Visits(t, overUCX(t, "shm", 0), 200) })
}
