package soak

import (
	"testing"

	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/internal/needs"
)

// overNetwork is the environment in which all messages go over libfabric, between
// ranks of a node too.
func overNetwork(t *testing.T) []string {
	t.Helper()
	if _, err := libfabric.Load("libfabric.so.1"); err != nil {
		needs.Missing(t, "%v: install libfabric1, and build with cgo", err)
	}
	return []string{"FERRY_PML=cm", "FERRY_PML_CM_SHARED_MEMORY=false", "FERRY_MTL_OFI_PROVIDER_INCLUDE=tcp;ofi_rxm"}
}

// TestCommsOverNetwork is TestComms where the network matches.
func TestCommsOverNetwork(t *testing.T) {
	needs.Time(t)
	run(t, 2, "comms", size(40_000, 2000), overNetwork(t)...)
}

// TestCyclesOverNetwork: a session that closes says so to its peer, and neither waits
// for the other.
func TestCyclesOverNetwork(t *testing.T) {
	needs.Time(t)
	run(t, 2, "cycles", size(300, 110), overNetwork(t)...)
}

// TestKillOverNetwork: the network tells of the death first, and its errors are those
// of the process all the same.
func TestKillOverNetwork(t *testing.T) {
	needs.Time(t)
	kills(t, size(50, 3), overNetwork(t)...)
}

// overSockets is the environment in which all messages go over btl/tcp.
var overSockets = []string{"FERRY_BTL=self,tcp"}

// TestKillOverTCP: a connection that is reset tells of the death first, and the error is that
// of the process all the same.
func TestKillOverTCP(t *testing.T) { kills(t, size(100, 4), overSockets...) }

// TestCyclesOverTCP: a session that closes says so to its peer, and neither waits for the other.
func TestCyclesOverTCP(t *testing.T) { run(t, 2, "cycles", size(300, 110), overSockets...) }
