package ofi_test

import (
	flags "flag"
	"regexp"
	"testing"

	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/internal/libfabric/testprov"
	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/mtl/mtltest"
)

// The full run is
//
//	go test ./mtl/ofi -run Profile -full
var full = flags.Bool("full", false, "run every case of the kit over every profile and fault; otherwise a third of them over each profile, and over a fault what may meet it")

// everyThird returns every third case, from the n-th.
func everyThird(all kittest.Cases, n int) (some kittest.Cases) {
	for i, c := range all {
		if *full || i%3 == n%3 {
			some = append(some, c)
		}
	}
	return some
}

// matching returns the cases whose names match, or those that don't match.
func matching(match bool, pattern string, all kittest.Cases) (some kittest.Cases) {
	for _, c := range all {
		if matched, _ := regexp.MatchString(pattern, c.Name); matched == match {
			some = append(some, c)
		}
	}
	return some
}

// Every other provider waits on its descriptor. The others poll.
func TestKitOverProfiles(t *testing.T) {
	for i, name := range testprov.Profiles {
		wait := []string{"fd", "poll"}[i%2]
		t.Run(name+","+wait, func(t *testing.T) { everyThird(mtltest.Cases(profile(t, name, "auto", wait)), i).Run(t) })
	}
}

// The module compensates for these faults.
func TestKitOverProfiles_MissingCapabilities(t *testing.T) {
	needs.Time(t)
	for _, c := range []struct{ provider, fault, cases string }{
		{"verbs;ofi_rxm", "order", "Order|Probe"},
		{"cxi", "nodirected", "Order|Probe|Synchronous"},
		{"efa", "nodata", "Order|Synchronous"},
		{"verbs;ofi_rxm", "tags=40", "Bit|Caps"},
		{"cxi", "max", "EverySize|Limit|Forget"},
		{"cxi", "unlimited", "Room|Many"},
		{"cxi", "queues=16", "Room|Many|Cancel|Control|Unexpected|Bit|Claim|Probe"},
		{"cxi", "queues=16,peeks=3", "Room|Many|Order|Probe|Claim"},
		{"tcp;ofi_rxm", "placed", "Truncated"},
		{"opx", "again=5", "Order|EverySize|Idle|Close"},
		{"tcp;ofi_rxm", "again=5", "Order|EverySize|Claim|Probe|Forgotten|Idle"}, // large receives wait
		{"verbs;ofi_rxm", "mr_local", "EverySize|Truncated|Claim|Registered|Control|Synchronous"},
		{"cxi", "mr_local", "EverySize|Cancel|Registered|Close"},
		{"efa", "mr_local", "EverySize|Registered|Forget"},
		{"efa", "slow=5", "Order|Probe|Claim|Cancel|Forget|Control"},
	} {
		t.Run(c.provider+","+c.fault, func(t *testing.T) {
			all := mtltest.Cases(profile(t, c.provider, "auto", "auto", c.fault))
			if !*full {
				all = matching(true, c.cases, all)
			}
			all.Run(t)
		})
	}
}

// Operations with a failed peer don't end before Forget. Without it Idle stays false, and a closing session waits for
// session.linger.
func TestKitOverProfiles_SilentPeerFailure(t *testing.T) {
	all := matching(false, "^MessagesOfTheDead|^PeerThatHasClosed", mtltest.Cases(profile(t, "cxi", "auto", "auto", "silent")))
	if !*full {
		all = matching(true, "Forget|Forgotten|Close", all)
	}
	all.Run(t)
}
