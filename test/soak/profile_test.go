package soak

import (
	"testing"

	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/internal/libfabric/testprov"
	"github.com/ferrympi/ferry/internal/needs"
)

// overProfile returns the environment of a job over a provider of the tests' own libfabric.
func overProfile(t *testing.T, provider string, faults ...string) []string {
	t.Helper()
	if err := libfabric.Built(); err != nil {
		t.Skip(err)
	}
	return append(testprov.Environment(provider, faults...),
		"FERRY_PML=cm", "FERRY_PML_CM_SHARED_MEMORY=false", "FERRY_MTL_OFI_LIBRARY="+testprov.Library(t), "FERRY_MTL_OFI_PROVIDER_INCLUDE="+provider, "FERRY_MTL_OFI_WARN=off")
}

// A message of 5 GiB exceeds the limits of cxi, verbs, psm3 and opx. Reduced, it is a message of 32
// MiB with limits of 1 MiB.
func TestBigOverProfiles(t *testing.T) {
	needs.Time(t)
	mib, faults := size(5<<10, 32), []string{}
	if *full && availableMemory() < 14<<30 {
		t.Skipf("needs 14 GiB of memory, and %d MiB are available", availableMemory()>>20)
	}
	if !*full {
		faults = append(faults, "max")
	}
	for _, provider := range testprov.Profiles {
		t.Run(provider, func(t *testing.T) { run(t, 2, "big", mib, overProfile(t, provider, faults...)...) })
	}
}

// Communicators are created and closed over networks with few features.
func TestCommsOverProfiles(t *testing.T) {
	for provider, faults := range map[string][]string{"cxi": {"queues=64", "nodirected"}, "efa": {"nodata", "max"}, "verbs;ofi_rxm": {"order", "again=2"}} {
		t.Run(provider, func(t *testing.T) { run(t, 2, "comms", size(4000, 200), overProfile(t, provider, faults...)...) })
	}
}
