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

// thirds returns the n-th third of the cases, counted in turn.
func thirds(all kittest.Cases, n int) (some kittest.Cases) {
	for i, c := range all {
		if *full || i%3 == n%3 {
			some = append(some, c)
		}
	}
	return some
}

// that returns the cases whose names match, or those that don't match.
func that(match bool, pattern string, all kittest.Cases) (some kittest.Cases) {
	for _, c := range all {
		if matched, _ := regexp.MatchString(pattern, c.Name); matched == match {
			some = append(some, c)
		}
	}
	return some
}

// TestKitOverProfiles awaits every other provider by its descriptor, and the others by the
// clock.
func TestKitOverProfiles(t *testing.T) {
	for i, name := range testprov.Profiles {
		wait := []string{"fd", "poll"}[i%2]
		t.Run(name+","+wait, func(t *testing.T) { thirds(mtltest.Cases(profile(t, name, "auto", wait)), i).Run(t) })
	}
}

// TestKitOverProfilesThatLackMuch: what a provider lacks, or does wrong, that nobody above
// sees anything of.
func TestKitOverProfilesThatLackMuch(t *testing.T) {
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
				all = that(true, c.cases, all)
			}
			all.Run(t)
		})
	}
}

// TestKitOverPeersOfAProfileThatDieInSilence: nobody tells of what the dead take along,
// until the launcher does (Forget): without that nobody is idle again, and a session that
// closes waits for session.linger.
func TestKitOverPeersOfAProfileThatDieInSilence(t *testing.T) {
	all := that(false, "^MessagesOfTheDead|^PeerThatHasClosed", mtltest.Cases(profile(t, "cxi", "auto", "auto", "silent")))
	if !*full {
		all = that(true, "Forget|Forgotten|Close", all)
	}
	all.Run(t)
}
