package soak

import (
	"testing"

	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/internal/needs"
)

// overNetwork returns the environment in which all messages use libfabric, also among ranks of a
// node.
func overNetwork(t *testing.T) []string {
	t.Helper()
	if _, err := libfabric.Load("libfabric.so.1"); err != nil {
		needs.Missing(t, "%v: install libfabric1, and build with cgo", err)
	}
	return []string{"FERRY_PML=cm", "FERRY_PML_CM_SHARED_MEMORY=false", "FERRY_MTL_OFI_PROVIDER_INCLUDE=tcp;ofi_rxm"}
}

// TestCommsOverNetwork is TestComms with matching in the network.
func TestCommsOverNetwork(t *testing.T) {
	needs.Time(t)
	run(t, 2, "comms", size(40_000, 2000), overNetwork(t)...)
}

// A closing session notifies its peer, and neither waits for the other.
func TestCyclesOverNetwork(t *testing.T) {
	needs.Time(t)
	run(t, 2, "cycles", size(300, 110), overNetwork(t)...)
}

// The network reports the death first. The errors are nevertheless those of the process.
func TestKillOverNetwork(t *testing.T) {
	needs.Time(t)
	killRepeatedly(t, size(50, 3), overNetwork(t)...)
}

// overSockets is the environment in which all messages use btl/tcp.
var overSockets = []string{"FERRY_BTL=self,tcp"}

// A connection reset reports the death first. The error is nevertheless that of the process.
func TestKillOverTCP(t *testing.T) { killRepeatedly(t, size(100, 4), overSockets...) }

// A closing session notifies its peer, and neither waits for the other.
func TestCyclesOverTCP(t *testing.T) { run(t, 2, "cycles", size(300, 110), overSockets...) }
