package ofi

import (
	"math"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/internal/libfabric"
)

// A Provider is ferry's knowledge about a provider of libfabric, beyond the attributes that the provider reports.
// docs/provider-defects.md shows it.
type Provider struct {
	// Name is libfabric's name in lower case, or a pattern for several names (path.Match).
	Name string
	// Devices names the devices of the provider below /sys/class. A folder with a final slash contains a
	// device with the name of the domain. A pattern (path.Match) matches any device. It is empty for a provider on
	// sockets, on memory or on another provider.
	Devices string
	// WorksOnSockets is set if the provider also supports plain network interfaces.
	WorksOnSockets bool
	// SeparatesNetworks is set if networks with different names are not connected.
	SeparatesNetworks bool
	// Listed is the condition for listing the provider as a choice.
	Listed Listing
	// NeedsRequest is set if only mtl.ofi.provider_include selects the provider.
	NeedsRequest bool
	// IsUntested is set if ferry was never tested with its hardware.
	IsUntested bool
	Quirks     []Quirk
}

// A Listing is the condition for listing a provider as a choice.
type Listing int

const (
	// The library has the provider.
	ListedIfPresent Listing = iota
	// The library has the base provider, which precedes the semicolon of the name.
	ListedIfBasePresent
	// Also if the library lacks it, because users search for it.
	ListedAlways
	// It has no endpoints that ferry can use.
	ListedNever
)

func (l Listing) String() string {
	return [...]string{"ListedIfPresent", "ListedIfBasePresent", "ListedAlways", "ListedNever"}[l]
}

// A Quirk is a property of a provider that ferry works around, with the remedy.
type Quirk struct {
	// FirstVersion and LastVersion are the first and last affected version of libfabric. Zero means no bound.
	FirstVersion, LastVersion libfabric.Version
	// Description states the property.
	Description string
	Remedy      Remedy
	// EagerBytes is the length limit of RaiseEager.
	EagerBytes int64
	// DisabledBy is an environment variable whose presence removes the quirk, or empty.
	DisabledBy string
	// FailingCases is a regular expression for the names of the cases of `ferry matrix` that fail, for ExpectFailures.
	FailingCases string
	// FoundIn is the year and month of discovery.
	FoundIn string
	// Evidence names the program or case that shows the quirk.
	Evidence string
}

// Versions returns the affected versions as a constraint, such as "<=1.17" or ">=1.18, <=2.3". It is empty if all
// versions are affected.
func (f Quirk) Versions() string {
	var bounds []string
	if (f.FirstVersion != libfabric.Version{}) {
		bounds = append(bounds, ">="+f.FirstVersion.String())
	}
	if (f.LastVersion != libfabric.Version{}) {
		bounds = append(bounds, "<="+f.LastVersion.String())
	}
	return strings.Join(bounds, ", ")
}

// A Remedy is ferry's reaction to a quirk, in the words of docs/provider-defects.md.
type Remedy string

const (
	RefuseProvider      Remedy = "refuses the provider"
	AssumeNodeLocal     Remedy = "uses it only within a node"
	PadReceives         Remedy = "pads each receive with 64 KiB, which are never read"
	PackSource          Remedy = "encodes the sender in the tag (layout packed)"
	PreferPacked        Remedy = "encodes the sender in the tag, unless mtl.ofi.layout is data, and sets FI_OFI_RXM_USE_SRX=1 before it loads libfabric"
	RaiseEager          Remedy = "receives such messages of a failed process, in addition to those that are injected"
	DeferLongReceives   Remedy = "receives no such message while its sender accepts nothing, for example during a reconnect"
	LimitReceives       Remedy = "limits the receives to the length of the queue"
	DrainBeforeClose    Remedy = "waits for partially received messages when it closes, for up to a second, and then leaves the endpoint open"
	DisableSegmentation Remedy = "sets FI_OFI_RXM_SAR_LIMIT=0 before it loads libfabric"
	ExpectFailures      Remedy = "marks the failures as expected in `ferry matrix`"
)

var (
	v1_17 = libfabric.Version{Major: 1, Minor: 17}
	v1_22 = libfabric.Version{Major: 1, Minor: 22} // The last version before 2.0.
	v2_0  = libfabric.Version{Major: 2}
	v2_3  = libfabric.Version{Major: 2, Minor: 3}
	v2_4  = libfabric.Version{Major: 2, Minor: 4}
)

const (
	quirkTooLong  = "a message longer than its receive ends the connection without an error"
	programClaim  = "mtl/ofi/testdata/claim.c"
	programOrphan = "mtl/ofi/testdata/orphan.c"
	quirkOrphans  = "receiving a message above 16 KiB of a failed sender crashes the process, or returns memory of another process, if receives may have an address or connections have their own buffers"
	// These versions also crash without addresses, if an address is inserted while a message waits.
	quirkOrphansBetween   = "receiving a message above 16 KiB of a failed sender crashes the process, or returns memory of another process, until the launcher has reported the failure"
	orphanCases           = "mtltest/MessagesOfTheDeadAreReceivedWholeOrNotAtAll"
	quirkOrphansReconnect = "receiving a message above 16 KiB of a failed sender crashes the process during a connection attempt to that sender"
	quirkPartialMessage   = "closing an endpoint with a partially received message above 16 KiB crashes the process"
	quirkBuffered         = "a message up to 16 KiB is complete when a probe finds it, unless FI_OFI_RXM_BUFFER_SIZE is set"
	quirkSegments         = "messages of 16 to 128 KiB are cut into segments, which are mixed with those of the next message after a matched probe has claimed one"
)

// rxmBuffer is the length of the buffers of ofi_rxm, in bytes. A longer message stays with its sender until it is
// received.
const rxmBuffer = 16 << 10

// known is in order of preference. Providers with a device precede all others.
var known = []Provider{
	{Name: "cxi", Devices: "cxi/", Listed: ListedAlways, IsUntested: true},
	{Name: "efa", Devices: "infiniband/", Listed: ListedAlways, IsUntested: true},
	{Name: "opx", Devices: "infiniband/hfi1*", Listed: ListedAlways, IsUntested: true},
	{Name: "psm2", Devices: "infiniband/hfi1*"},
	{Name: "verbs;ofi_rxm", Devices: "infiniband/", SeparatesNetworks: true, Listed: ListedAlways, IsUntested: true, Quirks: []Quirk{
		{Description: quirkSegments + " (code shared with net;ofi_rxm)", Remedy: DisableSegmentation, FoundIn: "2026-11", Evidence: programClaim + " with net;ofi_rxm"},
		{LastVersion: v1_22, Description: quirkOrphans + " (shared code)", Remedy: PreferPacked, FoundIn: "2026-11", Evidence: programOrphan + " with net;ofi_rxm"},
		{FirstVersion: v2_4, Description: quirkOrphans + " (shared code)", Remedy: PreferPacked, FoundIn: "2026-11", Evidence: programOrphan + " with tcp;ofi_rxm"},
		{FirstVersion: v2_0, LastVersion: v2_3, Description: quirkOrphansBetween, Remedy: ExpectFailures, FailingCases: orphanCases, FoundIn: "2026-11", Evidence: programOrphan + " with tcp;ofi_rxm"},
		{Description: quirkBuffered, Remedy: RaiseEager, EagerBytes: rxmBuffer, DisabledBy: "FI_OFI_RXM_BUFFER_SIZE", FoundIn: "2026-11", Evidence: "test/soak/TestKill_UnreceivedMessages_AreHandled"},
	}},
	{Name: "psm3", Devices: "infiniband/", WorksOnSockets: true, Listed: ListedAlways, IsUntested: true},
	{Name: "ucx", Devices: "infiniband/*"}, {Name: "mlx", Devices: "infiniband/*"},
	{Name: "usnic", Devices: "infiniband/usnic*"},
	{Name: "tcp;ofi_rxm", Listed: ListedIfBasePresent, Quirks: []Quirk{
		{Description: quirkTooLong, Remedy: PadReceives, FoundIn: "2026-11", Evidence: "mtltest/LongerMessageIsTruncatedAndItsLengthTold"},
		{LastVersion: v1_22, Description: quirkOrphans, Remedy: PreferPacked, FoundIn: "2026-11", Evidence: programOrphan},
		{FirstVersion: v2_4, Description: quirkOrphans, Remedy: PreferPacked, FoundIn: "2026-11", Evidence: programOrphan},
		{FirstVersion: v2_0, LastVersion: v2_3, Description: quirkOrphansBetween, Remedy: ExpectFailures, FailingCases: orphanCases, FoundIn: "2026-11", Evidence: programOrphan},
		{Description: quirkOrphansReconnect, Remedy: DeferLongReceives, FoundIn: "2026-11", Evidence: "mtltest/MessagesOfTheDeadWaitWhileItIsConnectedAgain"},
		{LastVersion: v1_17, Description: quirkPartialMessage, Remedy: DrainBeforeClose, FoundIn: "2026-11", Evidence: "mtltest/CloseWhileAMessageIsHalfHere"},
		{Description: quirkBuffered, Remedy: RaiseEager, EagerBytes: rxmBuffer, DisabledBy: "FI_OFI_RXM_BUFFER_SIZE", FoundIn: "2026-11", Evidence: "test/soak/TestKill_UnreceivedMessages_AreHandled"},
	}},
	{Name: "tcp", NeedsRequest: true},
	{Name: "net;ofi_rxm", Listed: ListedIfBasePresent, Quirks: []Quirk{
		{Description: quirkTooLong, Remedy: PadReceives, FoundIn: "2026-11", Evidence: "mtltest/LongerMessageIsTruncatedAndItsLengthTold"},
		{Description: quirkSegments, Remedy: DisableSegmentation, FoundIn: "2026-11", Evidence: programClaim},
		{Description: quirkOrphans, Remedy: PreferPacked, FoundIn: "2026-11", Evidence: programOrphan},
		{Description: quirkOrphansReconnect, Remedy: DeferLongReceives, FoundIn: "2026-11", Evidence: "mtltest/MessagesOfTheDeadWaitWhileItIsConnectedAgain"},
		{LastVersion: v1_17, Description: quirkPartialMessage, Remedy: DrainBeforeClose, FoundIn: "2026-11", Evidence: "mtltest/CloseWhileAMessageIsHalfHere"},
		{Description: quirkBuffered, Remedy: RaiseEager, EagerBytes: rxmBuffer, DisabledBy: "FI_OFI_RXM_BUFFER_SIZE", FoundIn: "2026-11", Evidence: "test/soak/TestKill_UnreceivedMessages_AreHandled"},
	}},
	{Name: "net", NeedsRequest: true, Quirks: []Quirk{
		{LastVersion: v1_17, Description: "a few unexpected messages block all later ones", Remedy: RefuseProvider, FoundIn: "2026-11", Evidence: programClaim},
	}},
	// The priority of providers that are not listed here, and of those above without a device.
	{Listed: ListedNever},
	{Name: "udp;ofi_rxd", Listed: ListedIfBasePresent, Quirks: []Quirk{
		{LastVersion: v1_17, Description: "a matched probe that claims a message corrupts messages and memory", Remedy: RefuseProvider, FoundIn: "2026-11", Evidence: programClaim},
		{Description: "truncation of a message longer than its receive is not reported", Remedy: PadReceives, FoundIn: "2026-11", Evidence: "mtltest/LongerMessageIsTruncatedAndItsLengthTold"},
	}},
	{Name: "sockets", NeedsRequest: true, Quirks: []Quirk{
		{Description: "a probe ignores the address of the sender", Remedy: PackSource, FoundIn: "2026-11", Evidence: "mtltest/ProbeFindsOnlyWhatItAsksFor"},
		{Description: "a message of any length is complete when a probe finds it", Remedy: RaiseEager, EagerBytes: math.MaxInt64, FoundIn: "2026-11", Evidence: "mtltest/MessagesOfTheDeadAreReceivedWholeOrNotAtAll"},
		{Description: "it accepts more receives than its queue holds, and loses their completions", Remedy: LimitReceives, FoundIn: "2026-11", Evidence: "mtltest/ManyReceivesOfOneIdDoNotBlockAnother"},
	}},
	{Name: "shm", NeedsRequest: true, Quirks: []Quirk{
		{Description: "it reaches only processes of its node, in contradiction to its attributes", Remedy: AssumeNodeLocal, FoundIn: "2026-11", Evidence: "its manual, fi_shm(7)"},
		{LastVersion: v1_17, Description: "a probe that finds a message fails with a truncation error", Remedy: RefuseProvider, FoundIn: "2026-11", Evidence: programClaim},
	}},
	{Name: "sm2", NeedsRequest: true, Quirks: []Quirk{
		{Description: "it reaches only processes of its node, in contradiction to its attributes", Remedy: AssumeNodeLocal, FoundIn: "2026-11", Evidence: "its manual, fi_sm2(7)"},
	}},
	// Providers with other endpoint types, obsolete networks, and layers without a base provider.
	{Name: "verbs", Listed: ListedNever}, {Name: "udp", Listed: ListedNever, NeedsRequest: true},
	{Name: "psm"}, {Name: "gni"}, {Name: "bgq"}, {Name: "netdir"}, {Name: "lpp"}, {Name: "rstream", Listed: ListedNever},
	{Name: "ofi_*", Listed: ListedNever}, {Name: "off_*", Listed: ListedNever}, {Name: "lnx*", Listed: ListedNever},
}

// Providers returns the known providers in order of preference. The caller must not modify their Quirks.
func Providers() []Provider { return slices.Clone(known) }

// lookupProvider returns the entry of a provider. Case is ignored.
func lookupProvider(name string) Provider {
	name = strings.ToLower(name)
	i := slices.IndexFunc(known, func(p Provider) bool {
		ok, _ := path.Match(p.Name, name) // A test checks the patterns.
		return ok
	})
	if i < 0 {
		return Provider{Name: name}
	}
	return known[i]
}

// providerPriority returns the position of a provider in the order of preference, 0 first.
func providerPriority(name string, hasDevice bool) int {
	name = strings.ToLower(name)
	i := slices.IndexFunc(known, func(p Provider) bool {
		ok, _ := path.Match(p.Name, name)
		return ok
	})
	if i < 0 || !hasDevice && known[i].Devices != "" {
		i = slices.IndexFunc(known, func(p Provider) bool { return p.Name == "" })
	}
	if !hasDevice {
		i += len(known)
	}
	return i
}

// quirkReason returns the description of the quirk of a provider that requires a remedy in a version of libfabric.
func quirkReason(provider string, r Remedy, v libfabric.Version) (what string, ok bool) {
	f, ok := findQuirk(provider, r, v)
	return f.Description, ok
}

// findQuirk returns the first quirk of a provider that requires a remedy in a version of libfabric.
func findQuirk(provider string, r Remedy, v libfabric.Version) (Quirk, bool) {
	for _, f := range lookupProvider(provider).Quirks {
		_, set := os.LookupEnv(f.DisabledBy)
		if f.Remedy == r && !f.FirstVersion.After(v) && (f.LastVersion == libfabric.Version{} || !v.After(f.LastVersion)) && !set {
			return f, true
		}
	}
	return Quirk{}, false
}
