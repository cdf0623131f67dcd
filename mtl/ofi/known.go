package ofi

import (
	"math"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/internal/libfabric"
)

// A Provider is what is known of a provider beyond what it says of itself. This file
// has all of it, and docs/provider-defects.md shows it.
type Provider struct {
	Name string // as libfabric has it, in lower case; or a pattern for several (path.Match)
	// Devices is where /sys/class shows the devices of a network's provider: a folder with
	// a slash at its end, for one that is called as the provider's domain; or a pattern
	// (path.Match) for any. Empty: it stands on sockets, on memory, or on another provider.
	Devices string
	// Sockets says that it also works over a plain network interface, without a device of
	// its own.
	Sockets bool
	// Apart says that networks with different names have no way to each other.
	Apart bool
	// Listed says when it is named as one that could be used.
	Listed Listing
	// Named says that it is used only where mtl.ofi.provider_include names it.
	Named bool
	// Untried says that there was no such hardware: the self-test decides alone.
	Untried bool
	Facts   []Fact
}

// A Listing says when a provider is named as one that could be used.
type Listing int

const (
	IfThere Listing = iota // where the library has it
	IfCore                 // where the library has what stands before the semicolon of its name
	Always                 // also where the library lacks it: people look for it
	Never                  // it has no endpoints that ferry could use by itself
)

// A Fact is something that ferry does something about.
type Fact struct {
	// First and Last are the versions of libfabric in which it is so. Zero: it was so in
	// all that were tried.
	First, Last libfabric.Version
	What        string // in words
	Remedy      Remedy
	Eager       int64  // with Keep: messages up to this length, in bytes
	Unless      string // a variable of the environment that, if it is set, changes it
	Fails       string // with Expect: which cases of `ferry matrix`, as a regular expression for whole names
	Found       string // year and month
	Shown       string // by what
}

// Versions are those of First to Last, as a constraint: "<=1.17", ">=1.18, <=2.3"; empty
// for all.
func (f Fact) Versions() string {
	var bounds []string
	if (f.First != libfabric.Version{}) {
		bounds = append(bounds, ">="+f.First.String())
	}
	if (f.Last != libfabric.Version{}) {
		bounds = append(bounds, "<="+f.Last.String())
	}
	return strings.Join(bounds, ", ")
}

// A Remedy is ferry's remedy for a fact, as a text of docs/provider-defects.md.
type Remedy string

const (
	Refuse Remedy = "does not use it"
	Local  Remedy = "takes it for one that never leaves the node"
	Spill  Remedy = "gives each receive 64 KiB more, which nobody reads"
	Pack   Remedy = "has the sender in the tag (layout packed)"
	Prefer Remedy = "has the sender in the tag, unless mtl.ofi.layout says data, and sets FI_OFI_RXM_USE_SRX=1 before it loads libfabric"
	Keep   Remedy = "receives such messages of a process that has died, and not only what is injected"
	Hold   Remedy = "asks for no such message of a peer that takes nothing, such as one that is being connected again"
	KeepTo Remedy = "keeps to the length of the queue by itself"
	Finish Remedy = "waits for half-received messages when it closes, for up to a second, and then leaves the endpoint open"
	Uncut  Remedy = "sets FI_OFI_RXM_SAR_LIMIT=0 before it loads libfabric"
	Expect Remedy = "has `ferry matrix` expect the failures"
)

var (
	v1_17 = libfabric.Version{Major: 1, Minor: 17}
	v1_22 = libfabric.Version{Major: 1, Minor: 22} // the last before 2.0
	v2_0  = libfabric.Version{Major: 2}
	v2_3  = libfabric.Version{Major: 2, Minor: 3}
	v2_4  = libfabric.Version{Major: 2, Minor: 4}
)

const (
	tooLong = "a message that is longer than its receive ends the connection, and nothing reports it"
	claim   = "mtl/ofi/testdata/claim.c"
	orphan  = "mtl/ofi/testdata/orphan.c"
	orphans = "a process that receives a message above 16 KiB whose sender has died crashes, or gets another process's memory, if receives can have an address or connections have buffers of their own"
	// In these it crashes where receives have none when an address is inserted while a
	// message waits.
	orphansBetween = "a process that receives a message above 16 KiB whose sender has died crashes, or gets another process's memory, until the launcher has told of the death"
	orphansFail    = "mtltest/MessagesOfTheDeadAreReceivedWholeOrNotAtAll"
	orphansCalled  = "a process that receives a message above 16 KiB whose sender has died crashes while a connection to it is being tried"
	halfHere       = "a process that closes while a message above 16 KiB is half received crashes"
	buffers        = "a message up to 16 KiB has come whole when a probe finds it, unless FI_OFI_RXM_BUFFER_SIZE is set"
	segments       = "messages of 16 to 128 KiB are cut into segments, and mixed up with the next one when a matched probe has claimed one"
)

// rxmBuffer is the length, in bytes, of the buffers of ofi_rxm: longer messages are left
// with their sender until they are received.
const rxmBuffer = 16 << 10

// known has the best first: it is the order in which providers are tried, those with a
// device before all others.
var known = []Provider{
	{Name: "cxi", Devices: "cxi/", Listed: Always, Untried: true},
	{Name: "efa", Devices: "infiniband/", Listed: Always, Untried: true},
	{Name: "opx", Devices: "infiniband/hfi1*", Listed: Always, Untried: true},
	{Name: "psm2", Devices: "infiniband/hfi1*"},
	{Name: "verbs;ofi_rxm", Devices: "infiniband/", Apart: true, Listed: Always, Untried: true, Facts: []Fact{
		{What: segments + ", by the code that net;ofi_rxm shares", Remedy: Uncut, Found: "2026-11", Shown: claim + " with net;ofi_rxm"},
		{Last: v1_22, What: orphans + ", by that code", Remedy: Prefer, Found: "2026-11", Shown: orphan + " with net;ofi_rxm"},
		{First: v2_4, What: orphans + ", by that code", Remedy: Prefer, Found: "2026-11", Shown: orphan + " with tcp;ofi_rxm"},
		{First: v2_0, Last: v2_3, What: orphansBetween, Remedy: Expect, Fails: orphansFail, Found: "2026-11", Shown: orphan + " with tcp;ofi_rxm"},
		{What: buffers, Remedy: Keep, Eager: rxmBuffer, Unless: "FI_OFI_RXM_BUFFER_SIZE", Found: "2026-11", Shown: "internal/soak/TestKillLeavesMessages"},
	}},
	{Name: "psm3", Devices: "infiniband/", Sockets: true, Listed: Always, Untried: true},
	{Name: "ucx", Devices: "infiniband/*"}, {Name: "mlx", Devices: "infiniband/*"},
	{Name: "usnic", Devices: "infiniband/usnic*"},
	{Name: "tcp;ofi_rxm", Listed: IfCore, Facts: []Fact{
		{What: tooLong, Remedy: Spill, Found: "2026-11", Shown: "mtltest/LongerMessageIsTruncatedAndItsLengthTold"},
		{Last: v1_22, What: orphans, Remedy: Prefer, Found: "2026-11", Shown: orphan},
		{First: v2_4, What: orphans, Remedy: Prefer, Found: "2026-11", Shown: orphan},
		{First: v2_0, Last: v2_3, What: orphansBetween, Remedy: Expect, Fails: orphansFail, Found: "2026-11", Shown: orphan},
		{What: orphansCalled, Remedy: Hold, Found: "2026-11", Shown: "mtltest/MessagesOfTheDeadWaitWhileItIsConnectedAgain"},
		{Last: v1_17, What: halfHere, Remedy: Finish, Found: "2026-11", Shown: "mtltest/CloseWhileAMessageIsHalfHere"},
		{What: buffers, Remedy: Keep, Eager: rxmBuffer, Unless: "FI_OFI_RXM_BUFFER_SIZE", Found: "2026-11", Shown: "internal/soak/TestKillLeavesMessages"},
	}},
	{Name: "tcp", Named: true},
	{Name: "net;ofi_rxm", Listed: IfCore, Facts: []Fact{
		{What: tooLong, Remedy: Spill, Found: "2026-11", Shown: "mtltest/LongerMessageIsTruncatedAndItsLengthTold"},
		{What: segments, Remedy: Uncut, Found: "2026-11", Shown: claim},
		{What: orphans, Remedy: Prefer, Found: "2026-11", Shown: orphan},
		{What: orphansCalled, Remedy: Hold, Found: "2026-11", Shown: "mtltest/MessagesOfTheDeadWaitWhileItIsConnectedAgain"},
		{Last: v1_17, What: halfHere, Remedy: Finish, Found: "2026-11", Shown: "mtltest/CloseWhileAMessageIsHalfHere"},
		{What: buffers, Remedy: Keep, Eager: rxmBuffer, Unless: "FI_OFI_RXM_BUFFER_SIZE", Found: "2026-11", Shown: "internal/soak/TestKillLeavesMessages"},
	}},
	{Name: "net", Named: true, Facts: []Fact{
		{Last: v1_17, What: "a few messages that nobody has received yet keep all later ones from arriving", Remedy: Refuse, Found: "2026-11", Shown: claim},
	}},
	// All others, and those above without a device.
	{Listed: Never},
	{Name: "udp;ofi_rxd", Listed: IfCore, Facts: []Fact{
		{Last: v1_17, What: "it corrupts messages and memory when a matched probe has claimed one", Remedy: Refuse, Found: "2026-11", Shown: claim},
		{What: "it does not report that a message longer than its receive was cut", Remedy: Spill, Found: "2026-11", Shown: "mtltest/LongerMessageIsTruncatedAndItsLengthTold"},
	}},
	{Name: "sockets", Named: true, Facts: []Fact{
		{What: "its probes find messages of every sender, whatever address they are given", Remedy: Pack, Found: "2026-11", Shown: "mtltest/ProbeFindsOnlyWhatItAsksFor"},
		{What: "a message of any length has come whole when a probe finds it", Remedy: Keep, Eager: math.MaxInt64, Found: "2026-11", Shown: "mtltest/MessagesOfTheDeadAreReceivedWholeOrNotAtAll"},
		{What: "it takes more receives than its queue has room for, and loses their completions", Remedy: KeepTo, Found: "2026-11", Shown: "mtltest/ManyReceivesOfOneIdDoNotBlockAnother"},
	}},
	{Name: "shm", Named: true, Facts: []Fact{
		{What: "it reaches processes of its node only, whatever its attributes say", Remedy: Local, Found: "2026-11", Shown: "its manual, fi_shm(7)"},
		{Last: v1_17, What: "its probes fail with a truncation error when there is a message", Remedy: Refuse, Found: "2026-11", Shown: claim},
	}},
	{Name: "sm2", Named: true, Facts: []Fact{
		{What: "it reaches processes of its node only, whatever its attributes say", Remedy: Local, Found: "2026-11", Shown: "its manual, fi_sm2(7)"},
	}},
	// What has endpoints of other types only; networks of the past; and layers, which offer
	// nothing by themselves.
	{Name: "verbs", Listed: Never}, {Name: "udp", Listed: Never, Named: true},
	{Name: "psm"}, {Name: "gni"}, {Name: "bgq"}, {Name: "netdir"}, {Name: "lpp"}, {Name: "rstream", Listed: Never},
	{Name: "ofi_*", Listed: Never}, {Name: "off_*", Listed: Never}, {Name: "lnx*", Listed: Never},
}

// Known returns what is known of providers, the best first. It is the caller's, but
// for the facts.
func Known() []Provider { return slices.Clone(known) }

// about is what is known of a provider, however its name is written.
func about(name string) Provider {
	name = strings.ToLower(name)
	i := slices.IndexFunc(known, func(p Provider) bool {
		ok, _ := path.Match(p.Name, name) // the test of the table tries each
		return ok
	})
	if i < 0 {
		return Provider{Name: name}
	}
	return known[i]
}

// place is where a provider stands in the order, 0 first. device says that the system
// shows a device of it.
func place(name string, device bool) int {
	name = strings.ToLower(name)
	i := slices.IndexFunc(known, func(p Provider) bool {
		ok, _ := path.Match(p.Name, name)
		return ok
	})
	if i < 0 || !device && known[i].Devices != "" {
		i = slices.IndexFunc(known, func(p Provider) bool { return p.Name == "" })
	}
	if !device {
		i += len(known)
	}
	return i
}

// needs returns what of a provider calls for the remedy in a version of the library.
func needs(provider string, r Remedy, v libfabric.Version) (what string, ok bool) {
	f, ok := fact(provider, r, v)
	return f.What, ok
}

// fact returns the first that calls for the remedy in a version of the library.
func fact(provider string, r Remedy, v libfabric.Version) (Fact, bool) {
	for _, f := range about(provider).Facts {
		_, set := os.LookupEnv(f.Unless)
		if f.Remedy == r && !f.First.After(v) && (f.Last == libfabric.Version{} || !v.After(f.Last)) && !set {
			return f, true
		}
	}
	return Fact{}, false
}
