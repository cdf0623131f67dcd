package cm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/internal/libfabric/testprov"
	"github.com/ferrympi/ferry/mtl/ofi"
	"github.com/ferrympi/ferry/pml/cm"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// overProfile returns cm over a provider of the test libfabric with faults.
func overProfile(t *testing.T, provider string, faults ...string) pmltest.Stack {
	t.Helper()
	if err := libfabric.Built(); err != nil {
		t.Skip(err)
	}
	testprov.Set(t, provider, faults...)
	return pmltest.Stack{PML: cm.Component(), MTL: ofi.Component(), Set: map[string]string{
		"mtl.ofi.provider_include": provider, "mtl.ofi.library": testprov.Library(t), "mtl.ofi.warn": "off",
	}}
}

// elsewhere are cases that TestMetamorphic_OverProfiles covers, or that wait for seconds and
// have tests over other networks.
var elsewhere = []string{"RandomProgram_AnyStack_HasTheOutcomeOfTheStandard", "ReceiveFromAnySource_AllOthersLeft_Ends"}

// TestContract_OverProfiles runs a third of the cases over each profile, with one id policy
// each. With -seeds, it runs all cases with all policies.
func TestContract_OverProfiles(t *testing.T) {
	for i, name := range testprov.Profiles {
		t.Run(name, func(t *testing.T) {
			s := overProfile(t, name)
			if *seeds > 0 {
				pmltest.Run(t, s, pmltest.Policies...)
				return
			}
			third := slices.Collect(func(yield func(kittest.Case) bool) {
				for k, c := range pmltest.Cases(s, pmltest.Policies[i%len(pmltest.Policies)]) {
					if k%3 == i%3 && !slices.Contains(elsewhere, c.Name) && !yield(c) {
						return
					}
				}
			})
			kittest.Cases(third).Run(t)
		})
	}
}

// TestMetamorphic_OverProfiles runs random programs over every profile and its faults.
func TestMetamorphic_OverProfiles(t *testing.T) {
	faults := []string{"", "order", "nodirected", "nodata", "tags=40", "max=20000", "unlimited", "queues=16", "again=5", "mr_local", "queues=16,peeks=3"}
	for i, fault := range faults {
		provider := testprov.Profiles[i%len(testprov.Profiles)]
		if fault == "" {
			provider = strings.Join(testprov.Profiles, ",")
		}
		t.Run(provider+","+fault, func(t *testing.T) {
			var all []pmltest.Variant
			for k, one := range strings.Split(provider, ",") {
				s := overProfile(t, one, fault)
				testprov.Set(t, provider, fault)
				all = append(all, pmltest.Variant{Name: one, Policy: pmltest.Policies[k%len(pmltest.Policies)], Stack: s})
			}
			for s := *seed; s < *seed+max(*seeds, 1); s++ {
				t.Run(fmt.Sprintf("seed %d", s), func(t *testing.T) {
					if err := pmltest.Metamorphic(t.Context(), s, all); err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
}

// TestPeerFailed_ProfileReportsNoFailure_OperationsEnd checks that the launcher's report ends pending operations.
func TestPeerFailed_ProfileReportsNoFailure_OperationsEnd(t *testing.T) {
	names := []string{"PeerFailureEndsEverythingPending"}
	if *seeds > 0 {
		names = append(names, elsewhere[1])
	}
	for _, name := range names {
		c, ok := kittest.Cases(pmltest.Cases(overProfile(t, "cxi", "silent"), cid.PolicyLazy)).Named(name)
		if !ok {
			t.Fatal(name)
		}
		kittest.Cases{c}.Run(t)
	}
}
